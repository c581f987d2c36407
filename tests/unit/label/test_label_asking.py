"""What the page asks next: the questions of `lht next`, the level that is enough, and what answers cost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import torchlht
from torchlht.data.samples import Samples, read_data
from torchlht.errors import ConfigError, DataError
from torchlht.hierarchy.tree import Hierarchy
from torchlht.learn.questions.opinion import Opinionated, form_opinion
from torchlht.serve.label import asking as page_asking
from torchlht.serve.label.asking import next_questions, some_of
from torchlht.serve.label.costs import AHEAD, Asking, spent
from torchlht.serve.label.desk import Desk, Given
from torchlht.serve.label.journal import Answer
from torchlht.serve.label.learner import Job, Looked, Questions, Ready, work_on
from torchlht.serve.label.learning import Material, train_view
from torchlht.serve.label.queues import Wanted, order_of
from torchlht.serve.label.reading import Source

TREE = Hierarchy.from_parents([[0, 0, 1, 1], [0, 0]], levels=["species", "family", "order"])
CHEAP = {"species": 1.0, "family": 0.2}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Features of four species in clouds; every fifth has a label, others none, and some are test samples."""
    rng = np.random.default_rng(0)
    leaf = np.arange(120) % 4
    x = (np.eye(4)[leaf].repeat(2, axis=1) * 3 + rng.normal(size=(120, 8))).astype(np.float32)
    y = np.stack([leaf, leaf // 2, leaf * 0], axis=1)
    y[np.arange(120) % 5 > 0] = -1
    names = {"levels": np.array(TREE.levels), "classes_species": np.array(["Ivory", "Silver", "Puffin", "Auk"])}
    np.savez(tmp_path / "f.npz", x=x, y=y, train=np.arange(120) < 100, **names)
    return tmp_path / "f.npz"


def material(data: Path) -> tuple[Material, Samples]:
    samples = read_data(data)
    return Material(np.arange(len(samples)), samples.features, samples.keys, samples.split), samples


@pytest.fixture
def desk(data: Path) -> Iterator[Desk]:
    pytest.importorskip("uvicorn", reason="pip install 'torchlht[label]'")
    from torchlht.serve.label.serving import Wishes, desk_for

    with desk_for(Source(str(data)), Wishes(blind=0.0, asking=Asking(cost=CHEAP))) as found:
        yield found


def test_questions_are_those_of_lht_next(data: Path) -> None:
    own, samples = material(data)
    done = np.zeros(len(samples), dtype=bool)
    found = next_questions(own, samples.labels, done, samples.hierarchy, Asking(cost=CHEAP))
    wanted = torchlht.next_questions(data, cost="species=1,family=0.2", budget=AHEAD)
    assert [own.keys[i] for i in found.rows] == [row["sample"] for row in wanted]
    levels = [samples.hierarchy.levels[k] for k in samples.hierarchy.top_down]
    assert [levels[k] for k in found.levels] == [row["level"] for row in wanted]
    assert list(found.why) == [row["why"] for row in wanted]
    assert set(found.levels.tolist()) == {1, 2}
    plain = next_questions(own, samples.labels, done, samples.hierarchy, Asking())  # without prices, typical samples
    wanted = torchlht.next_questions(data, strategy="typical", budget=AHEAD)
    assert [own.keys[i] for i in plain.rows] == [row["sample"] for row in wanted]


def test_nothing_is_asked_about_what_is_done_or_a_test_sample(data: Path) -> None:
    own, samples = material(data)
    done = np.arange(len(samples)) < 50
    found = next_questions(own, samples.labels, done, samples.hierarchy, Asking())
    assert set(found.rows.tolist()) == {i for i in range(50, 100) if i % 5}
    assert next_questions(own, samples.labels, ~done | done, samples.hierarchy, Asking()).rows.tolist() == []
    nothing = np.full_like(samples.labels, -1)
    assert next_questions(own, nothing, done & ~done, samples.hierarchy, Asking(strategy="margin")).rows.tolist() == []
    assert len(next_questions(own, nothing, done & ~done, samples.hierarchy, Asking()).rows) == 100


def test_large_data_are_asked_about_in_part(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, samples = material(data)
    monkeypatch.setattr(page_asking, "MOST", 30)
    some = some_of(own, samples.labels, samples.hierarchy, 0)
    labelled = (samples.labels[some] >= 0).any(axis=1)
    assert (len(some), labelled.sum()) == (30, 15)
    found = next_questions(own, samples.labels, np.zeros(120, bool), samples.hierarchy, Asking())
    assert set(found.rows.tolist()) == set(some[~labelled].tolist())


def test_an_opinion_as_a_network_is_the_plain_sum(data: Path) -> None:
    own, samples = material(data)
    opinion = form_opinion(own.coordinates, samples.labels[own.pool], samples.hierarchy)
    assert opinion is not None
    said = Opinionated(own.space, opinion)(torch.from_numpy(own.x))
    np.testing.assert_array_equal(said.chosen().numpy(), opinion.answers(own.space(own.x)))
    z = torch.linalg.solve_triangular(opinion.root.double(), own.space(own.x).double().T, upper=False).T
    z = z / z.norm(dim=1, keepdim=True)
    p = torch.softmax(z @ opinion.weight[:, :-1].double().T + opinion.weight[:, -1].double(), dim=1)
    for k in range(3):
        up = torch.from_numpy(samples.hierarchy.ancestors(k).copy())
        level = torch.stack([p[:, up == c].sum(dim=1) for c in range(samples.hierarchy.sizes[k])], dim=1)
        torch.testing.assert_close(said.probs(k).double(), level, rtol=1e-4, atol=1e-5)


def test_a_training_calibrates_measures_and_asks(data: Path) -> None:
    own, samples = material(data)
    job = Job(samples.labels, samples.hierarchy.to_dict(), np.zeros(120, bool), True)
    looked = work_on(own, job, Asking(cost=CHEAP))
    assert (looked.view.labelled, len(looked.questions.rows) > 20) == (20, True)
    many = np.where((np.arange(120) < 100)[:, None], read_all(data), samples.labels)
    view, _ = train_view(own, many, samples.hierarchy)
    assert view.calibrated
    assert min(view.accuracy) > 0.9
    assert view.source == "labelled samples that it had not learned from"
    with pytest.raises(DataError, match="at least two classes"):
        train_view(own, np.full_like(samples.labels, -1), samples.hierarchy)


def read_all(data: Path) -> np.ndarray:
    leaf = np.arange(120) % 4
    return np.stack([leaf, leaf // 2, leaf * 0], axis=1)


class Asked:
    """A learner that only remembers what it is asked."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def ask(self, job: Job) -> None:
        self.jobs.append(job)


def test_the_desk_asks_for_questions_as_soon_as_features_are_there(desk: Desk) -> None:
    desk.learner = Asked()  # type: ignore[assignment]
    desk.hear(Ready(None))
    assert [job.train for job in desk.learner.jobs] == [False]  # type: ignore[attr-defined]
    desk.hear(Looked(None, Questions(np.array([7, 3, 4]), np.array([1, 2, 1]), ("a", "b", "c"))))
    queue = order_of(desk, "next", Wanted()).tolist()
    assert queue[:3] == [7, 3, 4]
    assert sorted(queue) == sorted(set(queue)) == np.flatnonzero(~desk.state.done()).tolist()
    assert desk.brief(7)["asked"] == [1, "a"]
    family = desk.state.taxonomy.children(0)[0]
    desk.answer(Given([(7, 0)], "label", family, "ann"))
    assert order_of(desk, "next", Wanted()).tolist()[:2] == [3, 4]  # the family was enough
    assert 7 not in order_of(desk, "next", Wanted()).tolist()
    desk.answer(Given([(4, 0)], "cant_tell", None, "ann"))
    answers = [answer for _, answer in desk.state.counted()]
    assert [answer.asked for answer in answers] == [["family"], ["family"]]
    assert desk.progress()["cost"] == pytest.approx(0.4)
    desk.undo("ann")
    assert desk.progress()["cost"] == pytest.approx(0.2)


def test_what_answers_cost() -> None:
    levels, prices = ["order", "family", "species"], Asking(cost=CHEAP).prices(TREE)
    assert prices == [0.2, 0.2, 1.0]  # orders have no price: they cost what the next finer level does
    told = [
        (Answer(samples=["a"], seen=[0], what="label", path=["o", "f"]), 0.2),
        (Answer(samples=["a", "b"], seen=[0, 0], what="label", path=["o", "f", "s"]), 2.0),
        (Answer(samples=["a"], seen=[0], what="label", path=["o", "f", "s"], asked=["family"]), 1.0),
        (Answer(samples=["a"], seen=[0], what="label", path=["o", "f"], asked=["species"]), 1.0),
        (Answer(samples=["a"], seen=[0], what="cant_tell", asked=["family"]), 0.2),
        (Answer(samples=["a"], seen=[0], what="wrong_picture"), 1.0),
    ]
    for answer, price in told:
        assert spent([answer], levels, prices) == pytest.approx(price)
    assert spent([answer for answer, _ in told], levels, prices) == pytest.approx(5.4)


def test_a_level_that_the_tree_does_not_have_is_refused(data: Path) -> None:
    pytest.importorskip("uvicorn", reason="pip install 'torchlht[label]'")
    from torchlht.serve.label.serving import Wishes, desk_for

    wrong = [(Asking(cost={"genus": 1.0}), "genus"), (Asking(target="genus"), "genus")]
    for asking, name in wrong:
        with pytest.raises(ConfigError, match=name), desk_for(Source(str(data)), Wishes(asking=asking)):
            pass


def test_classes_have_other_names(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="pip install 'torchlht[label]'")
    from torchlht.serve.label.serving import Wishes, desk_for

    names = tmp_path / "names.csv"
    names.write_text("name,synonym\nSilver,Herring Gull\nSilver,Silbermöwe\n")
    with desk_for(Source(str(data)), Wishes(synonyms=names)) as desk:
        node = desk.state.taxonomy.named("Silver")[0]
        assert desk.tree()["synonyms"] == [[node, "Herring Gull"], [node, "Silbermöwe"]]
    names.write_text("name,synonym\nnobody,x\n")
    with (
        pytest.raises(DataError, match=r"line 2: no class is called 'nobody'"),
        desk_for(Source(str(data)), Wishes(synonyms=names)),
    ):
        pass
    names.write_text("name,other\na,b\n")
    with pytest.raises(DataError, match="no column 'synonym'"), desk_for(Source(str(data)), Wishes(synonyms=names)):
        pass
