import dataclasses
import itertools
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

import torchlht
from torchlht import DataError, Hierarchy, LHTError, Samples
from torchlht.cli import main
from torchlht.data.pictures import picture_at
from torchlht.data.samples import read_data
from torchlht.files import read_csv
from torchlht.learn.audit.applying import apply_audit
from torchlht.learn.audit.auditing import examine
from torchlht.learn.audit.believing import Judged, believed, judge_labels, judged_before
from torchlht.learn.audit.discriminant import choose_parts, form_opinions, learn, tree_means
from torchlht.learn.audit.placing import _slips, misplaced
from torchlht.learn.audit.twins import picture_twins, row_twins
from torchlht.learn.audit.wrong import Slips, _slip_weights, class_log_probs, doubts_of, fit_shares, given_probs

TREE = Hierarchy.from_parents(
    [[0, 0, 0, 1, 1, 1], [0, 1]],
    levels=["species", "family", "order"],
    classes=[[f"species {c}" for c in "abcdef"], ["gulls", "auks"], ["north", "south"]],
)


def birds(n=30, seed=0, width=24, hidden=0.0):
    """Six classes in two families: samples, and their true labels."""
    random = np.random.default_rng(seed)
    family, own = random.normal(size=(2, width)) * 2, random.normal(size=(6, width))
    fine = np.repeat(np.arange(6), n)
    x = (family[TREE.parents[0][fine]] + own[fine] + 0.6 * random.normal(size=(len(fine), width))).astype(np.float32)
    truth = np.array([TREE.path(c) for c in fine])
    labels = truth.copy()
    labels[random.random(len(fine)) < hidden, 0] = -1
    split = np.full(len(fine), "train")
    return Samples("birds", TREE, tuple(map(str, range(len(fine)))), labels, split, features=x), truth


def with_wrong(samples, rows):
    """Labels of some samples moved to the other family."""
    labels = samples.labels.copy()
    for i in rows:
        wrong = (labels[i, 0] + 3) % 6
        labels[i] = TREE.path(wrong)
    return dataclasses.replace(samples, labels=labels)


def write_npz(path, samples, **more):
    names = {f"classes_{level}": np.array(classes) for level, classes in zip(TREE.levels, TREE.classes, strict=True)}
    train = samples.split == "train"
    np.savez(path, x=samples.features, y=samples.labels, train=train, levels=np.array(TREE.levels), **names, **more)
    return path


# ---- mathematics -------------------------------------------------------------------------------------------------------


def test_class_probabilities_are_softmaxes_among_siblings():
    scores, sharp = torch.randn(4, 6, dtype=torch.float64), torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    found = class_log_probs(scores.float(), TREE, sharp.float()).double()
    for n, leaf in itertools.product(range(4), range(6)):
        expected = 0.0
        for k in range(3):
            e = [float(torch.exp(scores[n, c] * sharp[k])) for c in range(6)]
            mine = sum(e[c] for c in range(6) if TREE.path(c)[k] == TREE.path(leaf)[k])
            above = sum(e[c] for c in range(6) if k == 2 or TREE.path(c)[k + 1] == TREE.path(leaf)[k + 1])
            expected += np.log(mine / above)
        assert found[n, leaf].item() == pytest.approx(expected, abs=1e-4)
    assert found.exp().sum(dim=1).numpy() == pytest.approx(np.ones(4), abs=1e-5)


def test_the_probability_of_a_wrong_label_is_bayes_rule_over_all_classes():
    random = np.random.default_rng(0)
    probs = random.dirichlet(np.ones(6), size=5)
    labels = np.array([TREE.path(c) for c in (0, 1, 3, 5, 2)])
    labels[3:, 0] = -1
    shares = np.array([[0.8, 0.1, 0.04, 0.06], [0.7, 0.1, 0.2, 0], [0.9, 0.1, 0, 0]])
    given = given_probs(torch.from_numpy(np.log(probs)).float(), labels, TREE)
    found = doubts_of(given, labels, TREE, Slips((1.0, 1.0, 1.0), shares)).wrong
    for n, label in enumerate(labels):
        d = 0 if label[0] >= 0 else 1
        joint = {}
        for c in range(6):
            path = TREE.path(c)
            if path[d] == label[d]:
                joint[c] = probs[n, c] * shares[d, 0]
                continue
            chance = 0.0
            for h in range(1, 3 - d + 1):
                under = d + h == 3 or path[d + h] == label[d + h]
                others = sum(1 for j in range(TREE.sizes[d]) if j != label[d] and (d + h == 3 or _up(d, h, j) == label[d + h]))
                chance += shares[d, h] / others if under and others else 0.0
            joint[c] = probs[n, c] * chance
        total = sum(joint.values())
        for k in range(d, 3):
            expected = sum(p for c, p in joint.items() if TREE.path(c)[k] != label[k]) / total
            assert found[n, k] == pytest.approx(expected, abs=1e-5), (n, k)
    assert np.isnan(found[3:, 0]).all()


def _up(d, h, j):
    return TREE.ancestors(d + h, of=d)[j]


def test_em_finds_the_share_of_wrong_labels():
    random = np.random.default_rng(1)
    wrong = random.random(4000) < 0.2
    likely = np.zeros((4000, 4))
    likely[:, 0], likely[:, 1] = np.where(wrong, 0.01, 0.9), np.where(wrong, 0.5, 0.02)
    shares = fit_shares(likely, np.zeros(4000, dtype=int), 3)
    assert shares[0, 1] == pytest.approx(wrong.mean(), abs=0.02)
    assert shares.sum(axis=1) == pytest.approx(np.ones(3))


def test_means_are_drawn_to_those_of_their_parents():
    random = np.random.default_rng(2)
    mass = [torch.tensor([3.0, 0, 1, 2, 2, 2]), torch.tensor([4.0, 0]), torch.zeros(2)]
    sums = [torch.from_numpy(random.normal(size=(len(m), 4))).float() * m.unsqueeze(1) for m in mass]
    found = tree_means(sums, mass, TREE, pull=2.0)
    order = [(sum(sums[0][c] for c in range(6) if TREE.path(c)[1] == f) + sums[1][f]) for f in range(2)]
    count = [sum(float(mass[0][c]) for c in range(6) if TREE.path(c)[1] == f) + float(mass[1][f]) for f in range(2)]
    top = [order[f] / (count[f] + 2) for f in range(2)]
    families = [(order[f] + 2 * top[f]) / (count[f] + 2) for f in range(2)]
    for c in range(6):
        expected = (sums[0][c] + 2 * families[TREE.path(c)[1]]) / (mass[0][c] + 2)
        torch.testing.assert_close(found[c], expected)


def test_samples_that_are_all_as_their_class_is_can_be_judged():
    samples, _ = birds(n=5, width=50)
    same = dataclasses.replace(samples, features=np.repeat(samples.features[::5], 5, axis=0))
    np.testing.assert_array_equal(form_opinions(same).scores(np.arange(30)).argmax(1), same.labels[:, 0])


# ---- opinions ------------------------------------------------------------------------------------------------------------


def test_a_sample_has_no_say_in_the_opinion_about_it():
    samples, _ = birds()
    before = form_opinions(samples, folds=5)
    other = with_wrong(samples, [7])
    part = int(before.fold[7])
    seen = before.fold != part
    again = learn(before.x[torch.from_numpy(seen)], other.labels[seen], TREE)  # other labels for 7, which is not seen
    torch.testing.assert_close(before.judges[part].means, again.means)


def test_parts_depend_on_names_and_not_on_order():
    samples, _ = birds(6)
    order = np.random.default_rng(0).permutation(len(samples))
    parts, mixed = choose_parts(samples, 5, 0), choose_parts(samples.select(order), 5, 0)
    assert (parts[order] == mixed).all()
    assert all(np.bincount(parts[samples.labels[:, 0] == c], minlength=5).min() >= 1 for c in range(6))


def test_twins_are_judged_together():
    samples, _ = birds(10)
    fold = form_opinions(samples, folds=5, together=[(0, 31), (31, 50)]).fold
    assert fold[0] == fold[31] == fold[50]


@pytest.mark.parametrize("hidden", [0.0, 0.6])
def test_planted_wrong_labels_come_first_with_their_level_and_the_right_suggestion(hidden):
    samples, truth = birds(40, hidden=hidden)
    rows = [i for i in range(3, 240, 24) if samples.labels[i, 0] >= 0]
    found = examine(with_wrong(samples, rows), twins=False)
    first = found.rows[: len(rows)]
    assert {row.sample for row in first} == set(map(str, rows))
    assert {row.level for row in first} == {"order"}  # a family of another order: all of the branch is wrong
    right = [row.suggested == TREE.classes[TREE.levels.index(row.suggested_level)][
        truth[int(row.sample), TREE.levels.index(row.suggested_level)]] for row in first]  # fmt: skip
    assert np.mean(right) > 0.8
    for count in found.counts[1:]:
        assert count.low <= len(rows) <= count.high
    assert [row.probability for row in found.rows] == sorted((row.probability for row in found.rows), reverse=True)


def test_all_lists_every_known_label():
    samples, _ = birds(10, hidden=0.5)
    found = examine(samples, everything=True, twins=False)
    assert len(found.rows) == (samples.labels >= 0).sum()


def test_clean_labels_give_a_short_list():
    samples, _ = birds(40)
    assert len(examine(samples, twins=False).rows) <= 6


# ---- twins and tree --------------------------------------------------------------------------------------------------------


def test_rows_that_are_the_same_or_nearly_so_are_twins():
    samples, _ = birds(40)
    x = torch.from_numpy(samples.features)
    both = torch.cat([x, x[:3], x[5:6] * 1.00001])
    assert {(t.first, t.second) for t in row_twins(both)} == {(0, 240), (1, 241), (2, 242), (5, 243)}
    assert [t.exact for t in row_twins(both)] == [True, True, True, False]


def photograph(seed, side=96):
    random = np.random.default_rng(seed)
    small = Image.fromarray(random.integers(0, 255, (6, 6, 3), dtype=np.uint8))
    return small.resize((side, side), Image.Resampling.BICUBIC)


def test_copies_of_pictures_are_found_also_when_scaled_or_saved_again_and_others_are_not(tmp_path):
    for i in range(12):
        photograph(i).save(tmp_path / f"{i:02d}.png")
    (tmp_path / "copy0.png").write_bytes((tmp_path / "00.png").read_bytes())
    photograph(1).resize((61, 61)).save(tmp_path / "copy1.jpg", quality=60)
    names = [*(f"{i:02d}.png" for i in range(12)), "copy0.png", "copy1.jpg"]
    found = picture_twins([picture_at(tmp_path / name) for name in names])
    assert [(t.first, t.second, t.exact) for t in found] == [(0, 12, True), (1, 13, False)]


def test_a_class_under_the_wrong_parent_is_named_with_the_right_one():
    samples, truth = birds(20)
    tree = Hierarchy(levels=TREE.levels, classes=TREE.classes, parents=[[0, 0, 1, 1, 1, 1], TREE.parents[1]])
    labels = np.array([tree.path(c) for c in truth[:, 0]])
    opinions = form_opinions(dataclasses.replace(samples, hierarchy=tree, labels=labels))
    first = misplaced(opinions.judges[0], tree)[0]
    assert (first.label, first.now, first.better) == ("species c", "auks", "gulls")


def test_names_that_differ_by_a_letter():
    assert _slips(["herringgull", "heringgull", "puffin", "puffins", "auk", "auks", "razorbill"]) == [
        ("heringgull", "herringgull", "one letter"),
        ("puffin", "puffins", "one letter"),
    ]


# ---- files, applying, training -----------------------------------------------------------------------------------------------


def test_from_the_command_line_to_corrected_data(tmp_path, capsys):
    samples, truth = birds(40)
    rows = list(range(3, 240, 24))
    data = write_npz(tmp_path / "birds.npz", with_wrong(samples, rows), note=np.arange(3))
    with zipfile.ZipFile(data, "a") as archive, archive.open("file.npy", "w") as member:  # np.savez cannot call one so
        np.lib.format.write_array(member, np.arange(4))
    before = data.read_bytes()
    main(["audit", str(data), "--out", str(tmp_path / "a"), "--quiet"])
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == [
        "audit.html",
        "audit.json",
        "labels.csv",
        "tree.csv",
        "twins.csv",
    ]
    listed = read_csv(tmp_path / "a" / "labels.csv")
    assert list(listed[0]) == ["sample", "level", "given", "suggested", "suggested_level", "probability", "reason"]
    main(["audit", "apply", str(tmp_path / "a"), "--least", "0.9"])
    new = read_data(tmp_path / "a" / "corrected.npz")
    assert (new.labels[rows, 1] == truth[rows, 1]).mean() > 0.9
    assert len(read_csv(tmp_path / "a" / "corrected-journal.csv")) == (new.labels != read_data(data).labels).any(axis=1).sum()
    assert data.read_bytes() == before
    others = np.load(tmp_path / "a" / "corrected.npz")
    assert (others["note"] == np.arange(3)).all()
    assert (others["file"] == np.arange(4)).all()
    with pytest.raises(LHTError, match="exists already"):
        apply_audit(tmp_path / "a")


def test_an_edited_list_is_followed(tmp_path):
    samples, _ = birds(40)
    data = write_npz(tmp_path / "birds.npz", with_wrong(samples, [3, 27]))
    torchlht.audit(data, out=tmp_path / "a")
    text = (tmp_path / "a" / "labels.csv").read_text().splitlines()
    kept = next(line for line in text if line.startswith("3,"))
    cells = kept.split(",")
    cells[3], cells[4] = "species f", "species"
    (tmp_path / "a" / "labels.csv").write_text("\n".join([text[0], ",".join(cells)]) + "\n")
    made = apply_audit(tmp_path / "a", least=0.0)
    new, old = read_data(made.data).labels, read_data(data).labels
    assert new[3].tolist() == list(TREE.path(5))
    assert (np.delete(new, 3, 0) == np.delete(old, 3, 0)).all()
    cells[3] = "species z"
    (tmp_path / "a" / "labels.csv").write_text("\n".join([text[0], ",".join(cells)]) + "\n")
    with pytest.raises(DataError, match="no class 'species z'"):
        apply_audit(tmp_path / "a", tmp_path / "other.npz", least=0.0)


def test_data_that_has_changed_is_refused(tmp_path, capsys):
    samples, _ = birds(10)
    data = write_npz(tmp_path / "birds.npz", samples)
    torchlht.audit(data, out=tmp_path / "a")
    write_npz(data, with_wrong(samples, [3]))
    with pytest.raises(SystemExit) as stop:
        main(["audit", "apply", str(tmp_path / "a")])
    assert stop.value.code == 2
    assert "has changed since the audit" in capsys.readouterr().err


@pytest.mark.parametrize(("case", "words"), [("none", "no labels at all"), ("single", "every class has a single sample")])
def test_nothing_to_compare_is_one_sentence(tmp_path, capsys, case, words):
    samples, _ = birds(1)
    labels = np.full((6, 2), -1) if case == "none" else np.stack([np.arange(6)] * 2, axis=1)
    np.savez(tmp_path / "x.npz", x=samples.features, y=labels)
    with pytest.raises(SystemExit) as stop:
        main(["audit", str(tmp_path / "x.npz"), "--out", str(tmp_path / "a")])
    said = capsys.readouterr().err
    assert stop.value.code == 2
    assert words in said


def test_labels_count_as_unknown_up_to_the_coarsest_that_is_wrong():
    samples, _ = birds(2)
    wrong, better = np.zeros(samples.labels.shape), np.full(samples.labels.shape, -1)
    wrong[0], wrong[1, 0] = (0.9, 0.8, 0.1), 0.7
    wrong[2] = 0.4
    found, other, fewer = believed(samples, Judged(wrong, better))
    assert found.labels[0].tolist() == [-1, -1, samples.labels[0, 2]]
    assert found.labels[1].tolist() == [-1, *samples.labels[1, 1:]]
    assert (found.labels[2:] == samples.labels[2:]).all()
    assert (other, fewer) == (0, 2)


def test_what_is_more_probable_takes_the_place_of_a_doubted_label_no_deeper_than_it_was():
    samples, _ = birds(2)
    labels = samples.labels.copy()
    labels[0, 0] = -1  # a family only
    samples = dataclasses.replace(samples, labels=labels)
    wrong, better = np.zeros(labels.shape), np.full(labels.shape, -1)
    wrong[[0, 1, 3]], wrong[2, 0] = 0.9, 0.9
    better[[0, 2, 3, 4]] = TREE.path(5)
    better[1, 2] = 1
    found, other, fewer = believed(samples, Judged(wrong, better))
    assert found.labels[0].tolist() == [-1, *TREE.path(5)[1:]]
    assert found.labels[1].tolist() == [-1, -1, 1]
    assert found.labels[2].tolist() == [-1, *labels[2, 1:]]  # its family is believed, and the suggestion is of another
    assert found.labels[3].tolist() == list(TREE.path(5))
    assert (found.labels[4:] == labels[4:]).all()  # not doubted
    assert (other, fewer) == (3, 1)


def test_a_label_may_be_right_or_have_slipped_and_each_class_is_weighed_by_that():
    shares = np.array([[0.6, 0.1, 0.1, 0.2], [0.5, 0.2, 0.3, 0], [0.9, 0.1, 0, 0]])
    family = np.array([[-1, *TREE.path(1)[1:]]])
    weights = _slip_weights(family, None, TREE, shares)[0]
    assert weights == pytest.approx([0.5] * 3 + [0.3] * 3)  # there is one other family, and it is of another order
    assert _slip_weights(family, np.array([1]), TREE, shares)[0] == pytest.approx([0] * 3 + [0.3] * 3)


def test_right_labels_are_left_alone_in_training():
    samples, _ = birds(40, hidden=0.5)
    found, other, fewer = believed(samples, judge_labels(samples, samples.features))
    assert (found.labels == samples.labels).all()
    assert other == fewer == 0


def test_families_that_are_wrong_are_replaced_in_training():
    samples, truth = birds(40, hidden=0.8)
    rows = np.flatnonzero(samples.labels[:, 0] < 0)[::3]
    labels = samples.labels.copy()
    labels[rows, 1:] = 1 - labels[rows, 1:]
    noisy = dataclasses.replace(samples, labels=labels)
    found, other, _ = believed(noisy, judge_labels(noisy, noisy.features))
    assert (found.labels[rows, 1] == truth[rows, 1]).mean() > 0.9
    assert other <= 1.1 * len(rows)
    assert ((found.labels[:, 0] >= 0) <= (labels[:, 0] >= 0)).all()


def test_doubts_for_training_come_from_an_audit_or_are_found_at_once(tmp_path):
    samples, _ = birds(40)
    rows = list(range(3, 240, 24))
    data = write_npz(tmp_path / "birds.npz", with_wrong(samples, rows))
    noisy = read_data(data)
    torchlht.audit(data, out=tmp_path / "a")
    for judged in (judge_labels(noisy, noisy.features), judged_before(noisy, tmp_path / "a")):
        wrong = judged.wrong
        assert (wrong[rows, 0] > 0.5).all()
        assert (np.delete(wrong, rows, 0)[:, 0] > 0.5).mean() < 0.03
    with pytest.raises(DataError, match="not the data of the audit"):
        judged_before(dataclasses.replace(noisy, features=noisy.features + 1), tmp_path / "a")


def test_train_with_audit_learns_from_what_is_believed(tmp_path):
    samples, _ = birds(40)
    data = write_npz(tmp_path / "birds.npz", with_wrong(samples, list(range(3, 240, 24))))
    run = torchlht.train(str(data), out=tmp_path / "run", audit="auto", epochs=2, quiet=True)
    assert run.accuracy["family"] > 0.5
