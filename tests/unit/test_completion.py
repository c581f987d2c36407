"""`lht completion`: what a shell completes."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from torchlht.cli import all_commands, main
from torchlht.commands.completion import flags_of_all

PS = {"propagate", "posterior"}  # values of --semi


def completed(script: str, line: str) -> list[str]:
    """What bash completes at the end of a line."""
    words = line.split(" ")
    given = f"COMP_WORDS=({' '.join(words[:-1])} '{words[-1]}'); COMP_CWORD={len(words) - 1}"
    ask = f"{given}; _lht; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    told = subprocess.run(["bash", "--norc", "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=True)
    assert not told.stderr
    return told.stdout.split()


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
def test_bash_completes_commands_second_words_and_flags(capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "bash"])
    script = capsys.readouterr().out
    assert completed(script, "lht tr") == ["train"]
    assert completed(script, "lht train birds --epo") == ["--epochs"]
    assert completed(script, "lht hierarchy ch") == ["check"]
    assert "--to" in completed(script, "lht label export birds --t")
    assert "--port" in completed(script, "lht label birds --po")
    assert completed(script, "lht train birds b") == []


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
def test_bash_completes_values_that_are_few_and_leaves_files_to_itself(capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "bash"])
    script = capsys.readouterr().out
    assert completed(script, "lht train birds --semi p") == ["propagate", "posterior"]
    assert completed(script, "lht export runs/birds --to ") == ["onnx", "torch", "web"]
    assert "darwin-core" in completed(script, "lht label export birds --to ")
    assert completed(script, "lht train birds --method margi") == ["marginal"]
    assert completed(script, "lht methods margi") == ["marginal"]
    assert completed(script, "lht train birds --track-to ml") == ["mlflow"]
    assert completed(script, "lht completion b") == ["bash"]
    assert completed(script, "lht train birds --no-tra") == ["--no-track"]
    assert completed(script, "lht --v") == ["--version"]
    assert completed(script, "lht train ") == completed(script, "lht train --out ") == []


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_every_flag_of_every_command_is_in_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", shell])
    script = capsys.readouterr().out
    assert set(flags_of_all()) == set(all_commands())
    for own in flags_of_all().values():
        assert all((f"-l {flag[2:]} " if shell == "fish" else flag) in script for flag, _ in own)


def test_fish_knows_second_words_values_and_which_flags_take_none(capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "fish"])
    lines = capsys.readouterr().out.splitlines()
    after = "__fish_seen_subcommand_from hierarchy; and not __fish_seen_subcommand_from check diff find graft repair show"
    assert f"complete -c lht -n '{after}' -f -a 'check diff find graft repair show'" in lines
    [semi] = [line for line in lines if "seen_subcommand_from train'" in line and " -l semi " in line]
    assert " -x -l semi -d " in semi
    assert semi.endswith(" -a 'none propagate posterior both deep fixmatch taxon'")
    [freeze] = [line for line in lines if "seen_subcommand_from train'" in line and " -l freeze " in line]
    assert " -x " not in freeze
    assert " -r " not in freeze
    [out] = [line for line in lines if "seen_subcommand_from train'" in line and " -l out " in line]
    assert " -r -l out -d " in out, "takes a file"


@pytest.mark.skipif(not shutil.which("fish"), reason="no fish")
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("lht tr", {"train"}),
        ("lht --v", {"--version"}),
        ("lht train birds --hel", {"--help"}),
        ("lht train birds --semi p", PS),
    ],
)
def test_fish_completes_with_the_script(line: str, found: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "fish"])
    ask = ["fish", "--no-config", "-c", f"{capsys.readouterr().out}\ncomplete -C '{line}'"]
    told = subprocess.run(ask, capture_output=True, text=True, check=True)
    assert {one.partition("\t")[0] for one in told.stdout.splitlines()} == found
    assert not told.stderr


@pytest.mark.skipif(not shutil.which("zsh"), reason="no zsh")
def test_zsh_takes_the_script_without_a_start_file(capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "zsh"])
    script = capsys.readouterr().out
    told = subprocess.run(["zsh", "-f", "-c", f"{script}\necho $_comps[lht]"], capture_output=True, text=True, check=True)
    assert told.stdout.strip().endswith("_lht")
    assert not told.stderr
