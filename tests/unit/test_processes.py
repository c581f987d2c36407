"""One process alone: counts are its own, batches are cut without loss; and which run is whose after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml
from lightning_fabric import Fabric
from torch._dynamo.exc import TorchDynamoException

from torchlht.answer.backbones import create_backbone, share_statistics
from torchlht.cli import again
from torchlht.data.samples import lasting_name
from torchlht.errors import ConfigError, RunError
from torchlht.heads.prediction import masked_mean
from torchlht.learn.fitting import cut
from torchlht.learn.launching import check_compiler, find_machine, launch_id
from torchlht.learn.options import TrainArgs
from torchlht.learn.training import open_run
from torchlht.processes import Tally, objects_of_all, of_all, shared_count, shared_mean, together, world


def test_one_process_counts_for_itself() -> None:
    values = torch.randn(5, 3)
    for block in (together(), together(None)):
        with block:
            assert world() == 1
            assert shared_count(torch.tensor(7)) == 7
            assert shared_count(torch.tensor(0)) == 1
            assert shared_count(torch.tensor(0.0), least=1e-6).item() == pytest.approx(1e-6)
            assert torch.equal(shared_mean(values), values.mean())
    assert objects_of_all("x") == ["x"]
    assert of_all(values, values.device)[0] is values


def test_the_losses_of_parts_add_up_to_that_of_the_whole() -> None:
    values, known, tally = torch.randn(9), torch.rand(9) < 0.5, Tally()
    parts = [slice(0, 2), slice(2, 7), slice(7, 9)]

    def losses(part: slice) -> torch.Tensor:
        return masked_mean(values[part], known[part]) + shared_mean(values[part])

    with together(tally):
        for part in parts:
            tally.begin()
            losses(part)
        tally.close()
        found = torch.zeros(())
        for part in parts:
            tally.begin()
            found += losses(part)
    torch.testing.assert_close(found, masked_mean(values, known) + values.mean())


@pytest.mark.parametrize("size", [1, 2, 5, 12])
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("processes", [1, 2, 4])
def test_every_sample_of_a_batch_goes_to_one_process_once(size: int, parts: int, processes: int) -> None:
    batch = list(range(size))
    shares = [cut(batch, parts, rank, processes) for rank in range(processes)]
    assert len({len(share) for share in shares}) == 1, "each process takes part in every pass"
    assert all(part for share in shares for part, _ in share), "no part is empty everywhere"
    assert sorted(i for share in shares for _, rows in share for i in rows) == batch


def test_shared_statistics_keep_the_names_of_weights() -> None:
    backbone = create_backbone("small", pretrained=False, in_features=0)
    names = list(backbone.state_dict())
    share_statistics(backbone)
    assert list(backbone.state_dict()) == names
    assert any(isinstance(module, torch.nn.SyncBatchNorm) for module in backbone.modules())


def test_a_launch_is_known_by_its_id_or_by_who_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = Fabric(accelerator="cpu", devices=1)
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert launch_id(fabric) is None
    found = []
    for name in ("job 1", "job 2", "none", "job 1"):
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", name)
        found.append(launch_id(fabric))
    assert found[0] == found[3]
    assert len(set(found)) == 3


def unfinished(folder: Path, launch: str) -> Path:
    """A run of an earlier version that has begun."""
    folder.mkdir()
    args = TrainArgs(lasting_name("data.npz"), folder, epochs=7)
    model = {"backbone": "none", "in_features": 3, "method": "lht", "options": {}}
    config = {"model": model, "train": args.to_dict(), "launch": launch}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (folder / "split.json").write_text("{}")
    return folder


def test_only_the_launch_that_began_a_run_goes_on_with_it_unasked(tmp_path: Path) -> None:
    out = unfinished(tmp_path / "run", "mine")
    args, _, resuming = open_run(TrainArgs("data.npz", out), "mine")
    assert resuming
    assert args.epochs == 7, "with the options it was started with"
    with pytest.raises(RunError, match="holds an unfinished run"):
        open_run(TrainArgs("data.npz", out), "another")


def test_the_same_command_goes_on_and_another_one_asks_if_there_is_work_to_lose(tmp_path: Path, capsys) -> None:
    out = unfinished(tmp_path / "run", "mine")
    args, _, resuming = open_run(TrainArgs("data.npz", out, workers=3))
    assert resuming
    assert (args.epochs, args.workers) == (7, 3)
    assert "goes on with the run that was interrupted there" in capsys.readouterr().err
    (out / "checkpoint").mkdir()
    (out / "checkpoint" / "last.safetensors").touch()
    with pytest.raises(RunError, match=r"with other options \(--mask, --epochs\); continue it with lht train --resume"):
        open_run(TrainArgs("data.npz", out, epochs=8, mask=0.5))
    (out / "checkpoint" / "last.safetensors").unlink()
    (out / "notes.txt").touch()
    args, _, resuming = open_run(TrainArgs("data.npz", out, epochs=8))
    assert not resuming
    assert args.epochs == 8
    assert [one.name for one in out.iterdir()] == ["notes.txt"], "nothing is left of it, and nothing else is removed"


def test_an_interruption_tells_how_to_go_on() -> None:
    assert again(["train", "x"]) == "; the same command goes on from the last checkpoint"
    assert again(["compare", "x", "--out", "y"]) == "; the same command goes on with --resume"
    assert again(["compare", "x", "--out", "y", "--resume"]) == "; the same command goes on"
    assert again(["data", "preview", "x"]) == ""


def test_a_launch_begins_again_what_had_hardly_begun_and_leaves_alone_what_has_ended(tmp_path: Path) -> None:
    out = unfinished(tmp_path / "run", "mine")
    (out / "split.json").unlink()
    assert not open_run(TrainArgs("data.npz", out), "mine")[2]
    (out / "metrics.json").write_text("{}")
    assert not open_run(TrainArgs("data.npz", out), "mine")[2]
    with pytest.raises(RunError, match="holds a finished run"):
        open_run(TrainArgs("data.npz", out), "another")


def test_where_nothing_can_be_compiled_a_run_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise TorchDynamoException("no compiler found\nand much more")

    monkeypatch.setattr(torch, "compile", lambda _: fails)
    with pytest.raises(ConfigError, match=r"compile: .* \(no compiler found\); train without it"):
        check_compiler(torch.device("cpu"))


@pytest.mark.parametrize(("accelerator", "devices"), [("abacus", 1), ("tpu", 1), ("cpu", 1000)])
def test_what_this_machine_does_not_have_is_refused_in_one_sentence(accelerator: str, devices: int) -> None:
    with pytest.raises(ConfigError, match=r"cannot be used here|can use at most") as caught:
        find_machine(accelerator, devices)
    assert "\n" not in caught.value.in_flags
    assert "--Accel" not in caught.value.in_flags
