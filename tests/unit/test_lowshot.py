"""Low-shot: names to vectors to trees, who learns from what, rules against plain loops, and what is refused."""

from __future__ import annotations

import gzip
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import t as student

from torchlht.answer.backbones import create_backbone
from torchlht.cli import main
from torchlht.data.samples import Samples, read_data
from torchlht.errors import ConfigError, DataError
from torchlht.heads.method import create_method
from torchlht.hierarchy.tree import Hierarchy
from torchlht.lab.lowshot import grouping, scoring
from torchlht.lab.lowshot.grouping import (
    assign,
    bucket,
    commonest,
    group,
    kmeans,
    name_vectors,
    pieces,
    restrict,
    spelled,
    words,
)
from torchlht.lab.lowshot.protocol import make_protocol, ranks, target_names, write_source
from torchlht.lab.lowshot.results import Row, collect, document, summary, write_rows
from torchlht.lab.lowshot.scoring import by_cosine, hit_rate
from torchlht.lab.options import LowshotArgs
from trees import naive_cross_entropy, normal, random_hierarchy, random_labels, random_method

BIRDS = ["Black_footed_Albatross", "Laysan_Albatross", "Sooty_Albatross", "Ivory_Gull", "Herring_Gull", "Western_Gull"]
BIRDS += ["House_Wren", "Rock_Wren", "Winter_Wren", "Common_Tern", "Arctic_Tern", "Least_Tern"]


# ---- sgm and kt ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["per_level_mean", "per_sample"])
def test_sgm_equals_cross_entropy_plus_the_squared_gradient_of_each_sample(reduction):
    """The penalty is the squared norm of what autograd gives for one sample in the weights of the classifier."""
    rng = np.random.default_rng(0)
    tree = random_hierarchy(rng, (6, 3))
    method = random_method("sgm", tree, rng, penalty=0.3, reduction=reduction)
    x, labels = normal(rng, 5, 5), random_labels(tree, rng, 5)
    labels[0, 0], labels[1, 0] = 2, -1
    prediction = method(x)
    total, known = 0.0, [n for n in range(5) if labels[n, 0] >= 0]
    for n in known:
        one = -method(x[n : n + 1]).log_probs[0][0, labels[n, 0]]
        (gradient,) = torch.autograd.grad(one, method.classifier.weight)
        total += (one + 0.3 * gradient.square().sum()).item()
    expected = total / len(known) / 2 if reduction == "per_level_mean" else total / 5
    torch.testing.assert_close(method.loss(prediction, labels).item(), expected)


def test_sgm_in_numbers():
    """Two classes, p = (3/4, 1/4), y = 0, φ = (1, 2): ‖onehot - p‖² = 1/8, ‖φ‖² = 5."""
    tree = Hierarchy.from_parents([], classes=[["a", "b"]])
    method = random_method("sgm", tree, np.random.default_rng(0), 2, penalty=0.1)
    with torch.no_grad():
        method.classifier.weight.zero_()
        method.classifier.bias.copy_(torch.tensor([math.log(3.0), 0.0]))
    loss = method.loss(method(torch.tensor([[1.0, 2.0]], dtype=torch.float64)), torch.tensor([[0]]))
    assert loss.item() == pytest.approx(math.log(4 / 3) + 0.1 * 5 / 8)


def test_sgm_gives_coarse_levels_as_sums_and_ignores_their_labels():
    rng = np.random.default_rng(1)
    tree = random_hierarchy(rng, (9, 5, 3))
    method = random_method("sgm", tree, rng)
    prediction, labels = method(normal(rng, 4, 5)), random_labels(tree, rng, 4, 0.0)
    for k in range(2):
        torch.testing.assert_close(prediction.probs(k + 1), prediction.probs(k) @ torch.from_numpy(tree.matrix(k)).T)
    other = labels.clone()
    other[:, 1:] = -1
    assert method.loss(prediction, labels) == method.loss(prediction, other)


def naive_kt(weights: dict[str, np.ndarray], x: np.ndarray, levels: int) -> list[np.ndarray]:
    """Log-probabilities of one sample, level by level, by plain products."""

    def layer(name: str, v: np.ndarray) -> np.ndarray:
        return weights[f"{name}.weight"] @ v + weights[f"{name}.bias"]

    z = [layer(f"heads.{k}", x) for k in range(levels)]
    logits = [z[0]]
    for k in range(1, levels):
        logits.append(layer(f"answers.{k - 1}", layer(f"mixes.{k - 1}", np.concatenate(z[: k + 1]))))
    return [v - np.log(np.exp(v).sum()) for v in logits]


@pytest.mark.parametrize("reduction", ["per_level_mean", "per_sample"])
def test_kt_equals_a_naive_float64_reference(reduction):
    rng = np.random.default_rng(2)
    tree = random_hierarchy(rng, (9, 5, 3))
    method = random_method("kt", tree, rng, reduction=reduction)
    weights = {key: tensor.numpy() for key, tensor in method.state_dict().items()}
    x, labels = normal(rng, 6, 5), random_labels(tree, rng, 6)
    prediction = method(x)
    for n in range(6):
        for found, expected in zip(prediction.log_probs, naive_kt(weights, x[n].numpy(), 3), strict=True):
            np.testing.assert_allclose(found[n].detach().numpy(), expected, atol=1e-10)
    loss = method.loss(prediction, labels).item()
    assert loss == pytest.approx(naive_cross_entropy(prediction.log_probs, labels, reduction))
    method.level_weights = [1.0, 0.3, 2.0]
    parts = [naive_cross_entropy([p], labels[:, k : k + 1], reduction) for k, p in enumerate(prediction.log_probs)]
    share = 3 if reduction == "per_level_mean" else 1
    weighted = (parts[0] + 0.3 * parts[1] + 2 * parts[2]) / share
    assert method.loss(prediction, labels).item() == pytest.approx(weighted)


def test_kt_starts_as_plain_heads_but_for_its_noise():
    tree = random_hierarchy(np.random.default_rng(3), (80, 40, 20))
    plain = create_method("kt", 50, tree, variance=1e-12).double()
    x = normal(np.random.default_rng(3), 4, 50)
    for k, head in enumerate(plain.heads):
        torch.testing.assert_close(plain(x).log_probs[k], torch.log_softmax(head(x), dim=1), rtol=1e-4, atol=1e-4)


# ---- the linear backbone -------------------------------------------------------------------------------------------


def test_the_linear_backbone_starts_as_the_identity_and_counts_as_pretrained():
    backbone = create_backbone("linear", pretrained=False, in_features=7)
    x = torch.randn(5, 7)
    assert torch.equal(backbone(x), x)
    assert (backbone.num_features, backbone.preprocess, backbone.pretrained) == (7, None, True)
    assert sum(p.numel() for p in backbone.parameters() if p.requires_grad) == 7 * 7 + 7


# ---- names to vectors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("001.Black_footed_Albatross", ["black", "footed", "albatross"]),
        ("HouseWren", ["house", "wren"]),
        ("HTTPServer", ["http", "server"]),
        ("Brandt's cormorant", ["brandt", "s", "cormorant"]),
        ("Œdicnème-criard", ["œdicnème", "criard"]),
        ("crane [n02012849]", ["crane"]),
        ("737-800", []),
        ("ABC", ["abc"]),
    ],
)
def test_words_are_letters_between_anything_else(name, expected):
    assert words(name) == expected


def test_pieces_are_words_and_parts_of_them_with_marked_ends():
    assert list(pieces("Auk")) == ["=auk", "<au", "auk", "uk>", "<auk", "auk>", "<auk>"]
    assert list(pieces("a b")) == ["=a", "<a>", "=b", "<b>"]  # no piece reaches over two words


def test_vectors_are_weighted_by_rarity_and_have_unit_length():
    vectors = spelled(BIRDS)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1)
    similar = vectors @ vectors.T
    assert similar[0, 1] > similar[0, 3]
    (one,) = spelled(["ab"])
    assert one[[bucket(piece) for piece in ("=ab", "<ab", "ab>", "<ab>")]] == pytest.approx([0.5] * 4)


def test_a_word_that_fewer_names_have_weighs_more():
    vectors = spelled(["gull", "gull", "gull wren"])
    assert vectors[2, bucket("=wren")] > vectors[2, bucket("=gull")]
    ratio = (math.log(4 / 2) + 1) / (math.log(4 / 4) + 1)
    assert vectors[2, bucket("=wren")] / vectors[2, bucket("=gull")] == pytest.approx(ratio)


def test_vectors_and_groups_are_the_same_in_every_process():
    code = (
        "import hashlib; from torchlht.lab.lowshot.grouping import spelled; from torchlht.lab.lowshot.grouping import group;"
        f"names = {BIRDS!r}; v = spelled(names);"
        "print(hashlib.sha256(v.tobytes()).hexdigest(), group(names, v, (4, 2)).to_dict())"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1


GOOD = "gull 1 0 0\nIvory 0 1 0\nivory 0 2 0\nwren 0 0 4\n"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("head", ["", "4 3\n"])
def test_word_vectors_are_averaged_over_the_words_that_are_known(tmp_path, head, packed):
    file = tmp_path / ("v.txt.gz" if packed else "v.txt")
    file.write_bytes(gzip.compress((head + GOOD).encode()) if packed else (head + GOOD).encode())
    found = name_vectors(["Ivory_Gull", "House_Wren"], file)
    np.testing.assert_allclose(found, [[0.5, 1.0, 0.0], [0, 0, 4]])  # in lower case as it is spelled so, house unknown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gull 1 0 0\n", "2 class names have no word that is in .*v.txt: 'House_Wren', 'Rock_Wren'"),
        ("gull 1 0 0\nwren 1 0\n", "line 2: 2 numbers, expected 3"),
        ("gull 1 0 0\nwren 1 0 x\n", "line 2: could not convert string to float: 'x'"),
        ("gull 1 0 nan\n", "line 1: 3 numbers, expected 3 finite"),
        ("gull\n", "line 1: no numbers"),
        ("", "3 class names have no word"),
    ],
)
def test_a_file_of_word_vectors_that_will_not_do_is_refused(tmp_path, text, message):
    (tmp_path / "v.txt").write_text(text)
    with pytest.raises(DataError, match=message):
        name_vectors(["Ivory_Gull", "House_Wren", "Rock_Wren"], tmp_path / "v.txt")


def test_a_file_that_is_not_there_or_not_packed_is_refused(tmp_path):
    (tmp_path / "v.gz").write_text("gull 1\n")
    for file in (tmp_path / "no.txt", tmp_path / "v.gz"):
        with pytest.raises(DataError, match="not a readable file of word vectors"):
            name_vectors(["gull"], file)


def test_a_word_with_a_space_in_it_does_not_shift_the_numbers(tmp_path):
    (tmp_path / "v.txt").write_text("gull 1 2\n. . 3 4\nwren 5 6\n")
    np.testing.assert_allclose(name_vectors(["wren"], tmp_path / "v.txt"), [[5, 6]])


def test_names_without_words_are_refused_all_at_once():
    with pytest.raises(DataError, match=r"2 class names contain no words.*tree=data: '17', '18'"):
        name_vectors(["17", "Wren", "18"])


# ---- vectors to trees ----------------------------------------------------------------------------------------------


def test_similar_names_come_together_under_their_commonest_word():
    tree = group(BIRDS, spelled(BIRDS), (4, 2))
    assert tree.levels == ("class", "group1", "group2")
    assert tree.sizes == (12, 4, 2)
    for g, name in enumerate(tree.classes[1]):
        members = [tree.classes[0][i] for i in np.flatnonzero(tree.parents[0] == g)]
        kind = members[0].split("_")[-1]
        assert [member.split("_")[-1] for member in members] == [kind] * 3
        assert name == f"{kind.lower()} {g + 1}"


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_classes_does_not_change_the_tree(seed):
    order = np.random.default_rng(seed).permutation(len(BIRDS))
    mixed = [BIRDS[i] for i in order]
    assert group(mixed, spelled(BIRDS)[order], (5, 3)) == group(BIRDS, spelled(BIRDS), (5, 3))


def test_the_seed_fixes_the_groups():
    x = np.random.default_rng(0).normal(size=(60, 3))
    assert (kmeans(x, 9, seed=1) == kmeans(x, 9, seed=1)).all()
    assert (kmeans(x, 9, seed=1) != kmeans(x, 9, seed=2)).any()


def test_coarser_groups_are_made_of_means_over_member_classes():
    """Three classes in one group and one in another: the mean of the three weighs as one point above."""
    names, angles = ["a", "b", "c", "d", "e"], np.array([0, 2, 4, 60, 200]) / 180 * np.pi
    x = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    tree = group(names, x, (3, 2))
    assert tree.parents[0].tolist() == [0, 0, 0, 1, 2]
    assert tree.parents[1].tolist() == [0, 0, 1]


def test_kmeans_finds_what_is_plainly_there_and_the_best_of_its_starts():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(8, 5)) * 10
    truth = np.repeat(np.arange(8), 12)
    x = centres[truth] + rng.normal(size=(96, 5)) * 0.1
    found = kmeans(x, 8)
    assert len({(a, b) for a, b in zip(truth, found, strict=True)}) == 8


def test_an_empty_group_takes_the_row_that_is_farthest_from_its_own_centre():
    x = np.array([[0.0], [1.0], [10.0], [11.0], [30.0]])
    centres = np.array([[0.5], [10.5], [1000.0]])  # nothing is nearest to the last
    assert assign(x, centres).tolist() == [0, 0, 1, 1, 2]
    centres = np.array([[0.5], [10.5], [1000.0], [2000.0]])
    groups = assign(x, centres)
    assert sorted(set(groups.tolist())) == [0, 1, 2, 3]
    assert groups[4] == 2  # the farthest first


def test_a_group_of_one_is_not_emptied_for_another():
    x = np.array([[0.0], [0.1], [50.0]])
    centres = np.array([[0.0], [20.0], [900.0]])  # the row at 50 is the farthest, and alone
    assert assign(x, centres).tolist() == [0, 2, 1]


@pytest.mark.parametrize("k", [1, 2, 5])
def test_equal_rows_still_fill_every_group(k):
    groups = kmeans(np.ones((5, 2)), k)
    assert sorted(set(groups.tolist())) == list(range(k))


def test_many_dimensions_give_the_same_groups_as_few():
    x = np.random.default_rng(1).normal(size=(20, 6))
    wide = np.concatenate([x, np.zeros((20, 100))], axis=1)
    compact = grouping.compact(wide)
    assert compact.shape == (20, 20)
    np.testing.assert_allclose(grouping.squared_distances(compact, compact), grouping.squared_distances(x, x), atol=1e-9)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [((13, 2), "more groups than the 12 classes"), ((4, 4), "each smaller"), ((2, 4), "each smaller"), ((4, 1), "at least 2")],
)
def test_numbers_of_groups_that_make_no_sense_are_refused(sizes, message):
    with pytest.raises(ConfigError, match=message):
        group(BIRDS, spelled(BIRDS), sizes)


def test_as_many_groups_as_classes_is_allowed():
    assert group(BIRDS, spelled(BIRDS), (12,)).sizes == (12, 12)


def test_the_commonest_word_is_the_noun_where_all_are_as_common():
    assert commonest(["Ivory_Gull", "Herring_Gull", "Ivory_Tern"]) == "gull"
    assert commonest(["Groove_billed_Ani"]) == "ani"
    assert commonest(["17", "18"]) == "group"


def test_a_tree_without_some_classes_has_no_empty_groups():
    tree = Hierarchy.from_parents([[0, 0, 1, 2], [0, 1, 1]], classes=[["a", "b", "c", "d"], ["p", "q", "r"], ["x", "y"]])
    small = restrict(tree, {"d", "b"})
    assert small.classes == (("b", "d"), ("p", "r"), ("x", "y"))
    assert [p.tolist() for p in small.parents] == [[0, 1], [0, 1]]
    assert restrict(tree, {"a", "b"}).classes == (("a", "b"), ("p",), ("x",))


# ---- who learns from what ------------------------------------------------------------------------------------------


@pytest.fixture
def birds() -> Samples:
    """12 species in 4 families, 10 samples each, 4 of them for testing; two samples are known to the family only."""
    rng = np.random.default_rng(0)
    tree = Hierarchy.from_parents(
        [np.repeat(np.arange(4), 3)], levels=("species", "family"), classes=[BIRDS, ["Albatross", "Gull", "Wren", "Tern"]]
    )
    species = np.repeat(np.arange(12), 10)
    labels = np.stack([species, species // 3], axis=1)
    labels[[5, 17], 0] = -1
    x = (rng.normal(size=(12, 8))[species] * 2 + rng.normal(size=(120, 8))).astype(np.float32)
    split = np.where(np.arange(120) % 10 < 6, "train", "test")
    return Samples("birds", tree, tuple(f"s{i}" for i in range(120)), labels, split, features=x)


def options(out: Path = Path("out"), **more: object) -> LowshotArgs:
    settings = {"target": "4", "groups": "4,2", "shots": "1,2", "top": 2, "draws": 3, **more}
    return LowshotArgs("birds", out, **settings)


def test_source_classes_train_and_target_classes_are_asked_from_any_split(birds):
    protocol = make_protocol(options(), birds)
    names = set(protocol.names)
    assert len(names) == 4
    fine = [BIRDS[i] if i >= 0 else None for i in birds.labels[:, 0]]
    expected = [birds.keys[i] for i in range(120) if fine[i] in names]
    assert list(protocol.target.keys) == expected
    assert [protocol.names[c] for c in protocol.classes] == [name for name in fine if name in names]
    assert set(protocol.target.split) == {"train", "test"}
    source = [birds.keys[i] for i in range(120) if fine[i] and fine[i] not in names and birds.split[i] == "train"]
    assert list(protocol.source.keys) == source
    tree = protocol.source.hierarchy
    assert set(tree.classes[0]) == set(BIRDS) - names
    assert protocol.grouping.sizes == (12, 4, 2)
    for key, label in zip(source, protocol.source.labels, strict=True):
        assert tree.classes[0][label[0]] == fine[int(key[1:])]
        assert tuple(label) == tree.path(label[0])


def test_the_tree_may_be_the_datas_own_or_made_without_the_new_classes(birds):
    own = make_protocol(options(tree="data"), birds)
    assert own.source.hierarchy.levels == ("species", "family")
    assert own.grouping == birds.hierarchy
    alone = make_protocol(options(cluster="source", groups="3,2"), birds)
    assert alone.grouping.sizes == (8, 3, 2)
    assert alone.grouping == alone.source.hierarchy


def test_data_of_a_single_level_will_do(birds):
    flat = Hierarchy.from_parents([], levels=("class",), classes=[BIRDS])
    single = Samples("birds", flat, birds.keys, birds.labels[:, :1], birds.split, features=birds.features)
    assert make_protocol(options(), single).source.hierarchy.levels == ("class", "group1", "group2")
    assert make_protocol(options(tree="data"), single).source.hierarchy.levels == ("class",)


def test_the_drawn_classes_depend_on_names_and_seed_alone():
    first = target_names("4", BIRDS, seed=0)
    assert target_names("4", BIRDS[::-1], seed=0) == first
    assert target_names("4", [*BIRDS, "Dodo"], seed=0) - {"Dodo"} <= first
    assert any(target_names("4", BIRDS, seed=seed) != first for seed in range(1, 4))


def test_new_classes_can_be_listed_in_a_file(tmp_path, birds):
    (tmp_path / "new.txt").write_text("House_Wren\n\n Ivory_Gull \nLeast_Tern\n")
    protocol = make_protocol(options(target=str(tmp_path / "new.txt")), birds)
    assert protocol.names == ("House_Wren", "Ivory_Gull", "Least_Tern")


def test_draws_are_nested_paired_and_independent_of_order():
    keys, classes = [f"k{i}" for i in range(30)], np.arange(30) % 3
    rank = ranks(keys, classes, seed=0, number=1)
    for c in range(3):
        assert sorted(rank[classes == c]) == list(range(10))
    mixed = np.random.default_rng(0).permutation(30)
    again = ranks([keys[i] for i in mixed], classes[mixed], seed=0, number=1)
    assert (again == rank[mixed]).all()
    fewer = [i for i in range(30) if i not in (4, 8)]  # other samples do not change who comes before whom
    left = ranks([keys[i] for i in fewer], classes[fewer], seed=0, number=1)
    for c in range(3):
        inside = [j for j, i in enumerate(fewer) if classes[i] == c]
        assert [keys[fewer[j]] for j in sorted(inside, key=lambda j: left[j])] == [
            keys[i] for i in sorted((i for i in fewer if classes[i] == c), key=lambda i: rank[i])
        ]
    assert (ranks(keys, classes, seed=0, number=2) != rank).any()
    assert (ranks(keys, classes, seed=1, number=1) != rank).any()


def test_what_is_trained_on_is_written_as_a_dataset(tmp_path, birds):
    source = make_protocol(options(), birds).source
    again = read_data(write_source(source, tmp_path))
    assert again.hierarchy == source.hierarchy
    np.testing.assert_array_equal(again.features, source.features)
    np.testing.assert_array_equal(again.labels, source.labels)
    assert set(again.split) == {"train"}


@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        ({"target": "11"}, ConfigError, "target=11 of 12 classes"),
        ({"target": "1"}, ConfigError, "target=1 of 12 classes"),
        ({"target": "nowhere.txt"}, ConfigError, "neither a number nor a readable file"),
        ({"top": 4}, ConfigError, "top=4 of 4 new classes is always right"),
        ({"shots": "1,10"}, DataError, r"10 shots need 11 samples.*too few of .*\(10\).*lower shots"),
        ({"groups": "13,2"}, ConfigError, "more groups than the 12 classes"),
        ({"groups": "9,2", "cluster": "source"}, ConfigError, "more groups than the 8 classes"),
    ],
)
def test_a_protocol_that_makes_no_sense_is_refused(birds, more, error, message):
    with pytest.raises(error, match=message):
        make_protocol(options(**more), birds)


def test_an_unknown_new_class_is_refused_with_the_nearest(tmp_path, birds):
    (tmp_path / "new.txt").write_text("House_Wren\nIvory_Gul\nLeast_Tern\n")
    with pytest.raises(DataError, match="no class 'Ivory_Gul': did you mean Ivory_Gull"):
        make_protocol(options(target=str(tmp_path / "new.txt")), birds)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"shots": "0,1"}, "shots is 0: it must be at least 1"),
        ({"shots": "one"}, "shots is 'one': pass whole numbers"),
        ({"groups": "4,b"}, "groups is '4,b': pass whole numbers"),
        ({"draws": 0}, "draws is 0"),
        ({"top": 0}, "top is 0"),
        ({"seeds": 0}, "seeds is 0"),
        ({"methods": " ,"}, "methods"),
        ({"epochs": 0}, "epochs is 0"),
        ({"lr": 0.0}, "lr is 0.0"),
        ({"ppa_steps": 0}, "ppa_steps is 0"),
        ({"weight_decay": -1.0}, "weight_decay is -1.0"),
        ({"backbone_lr": -1.0}, "backbone_lr is -1.0"),
    ],
)
def test_options_that_make_no_sense_are_refused(more, message):
    with pytest.raises(ConfigError, match=message):
        options(**more)


# ---- rules against loops -------------------------------------------------------------------------------------------


def test_nearest_means_by_cosine_equal_a_loop():
    rng = np.random.default_rng(0)
    classes = np.arange(24) % 4
    x = rng.normal(size=(24, 6)).astype(np.float32)
    support = ranks([str(i) for i in range(24)], classes, seed=0, number=0) < 2
    scores = by_cosine(x, classes)(support)
    asked = np.flatnonzero(~support)
    hits = 0
    for row, i in enumerate(asked):
        cosines = []
        for c in range(4):
            mean = sum(x[j] for j in range(24) if support[j] and classes[j] == c) / 2
            cosines.append(x[i] @ mean / np.linalg.norm(x[i]) / np.linalg.norm(mean))
        np.testing.assert_allclose(scores[row], cosines, atol=1e-6)
        hits += classes[i] in np.argsort(cosines)[-2:]
    assert hit_rate(scores, classes[asked], 2) == pytest.approx(hits / len(asked))


def test_equal_scores_count_by_their_chance():
    scores = np.array(
        [[0.0, 0.0, 0.0, 0.0], [3.0, 2.0, 2.0, 1.0], [3.0, 2.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0]], dtype=np.float32
    )
    classes = np.array([1, 1, 0, 0])
    assert hit_rate(scores, classes, 1) == pytest.approx((1 / 4 + 0 + 1 + 0) / 4)
    assert hit_rate(scores, classes, 2) == pytest.approx((2 / 4 + 1 / 2 + 1 + 0) / 4)
    assert hit_rate(scores, classes, 4) == 1.0


def test_ppa_predicts_unit_weights_from_unit_activations_by_two_layers():
    predictor = scoring.WeightPredictor(4)
    rng = np.random.default_rng(0)
    for parameter in predictor.parameters():
        parameter.data = normal(rng, *parameter.shape, dtype=torch.float32)
    a = rng.normal(size=(3, 4)).astype(np.float32)
    found = predictor(torch.from_numpy(a)).detach().numpy()
    one, two = predictor.layers[0], predictor.layers[2]
    for n in range(3):
        hidden = one.weight.detach().numpy() @ (a[n] / np.linalg.norm(a[n])) + one.bias.detach().numpy()
        out = two.weight.detach().numpy() @ np.maximum(hidden, 0) + two.bias.detach().numpy()
        np.testing.assert_allclose(found[n], out / np.linalg.norm(out), rtol=1e-5, atol=1e-6)


def test_untrained_ppa_on_features_that_are_never_negative_is_the_rule_of_nearest_means():
    rng = np.random.default_rng(1)
    classes = np.arange(20) % 5
    x = rng.random(size=(20, 6)).astype(np.float32)
    support = ranks([str(i) for i in range(20)], classes, seed=0, number=0) < 2
    predicted = scoring.by_predicted_weights(scoring.WeightPredictor(6), x, classes)(support)
    length = np.linalg.norm(x[~support], axis=1, keepdims=True)
    np.testing.assert_allclose(predicted / length, by_cosine(x, classes)(support), atol=1e-6)


def test_ppa_learns_and_is_the_same_for_the_same_seed(tmp_path):
    rng = np.random.default_rng(2)
    classes = np.repeat(np.arange(6), 12)
    telling = rng.random(size=(6, 6))[classes] + 0.1 * rng.random(size=(72, 6))
    x = 5 * np.concatenate([telling, 3 * rng.random(size=(72, 2))], axis=1).astype(np.float32)  # the last two say nothing
    one, two = (scoring.train_predictor(x, classes, steps=500, seed=0) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    rank = ranks([str(i) for i in range(72)], classes, seed=0, number=0)
    asked = classes[rank >= 3]
    before, after = (scoring.by_predicted_weights(p, x, classes)(rank < 3) for p in (scoring.WeightPredictor(8), one))
    assert hit_rate(after, asked, 1) > hit_rate(before, asked, 1) + 0.1
    scoring.keep_predictor(one, tmp_path / "ppa.safetensors")
    again = scoring.kept_predictor(tmp_path / "ppa.safetensors", 8)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), again.parameters(), strict=True))


def test_a_step_of_diffusion_on_a_graph_made_by_hand():
    """0 → 1, 1 → 0, 2 → 1: edges both ways are 0=1 (twice) and 1–2, rows (0: 1 by 2), (1: 0 by 2, 2 by 1), (2: 1 by 1)."""
    walk = scoring.transitions(scoring.adjacency(np.array([[1], [0], [1]]), 3))
    np.testing.assert_allclose(walk.toarray(), [[0, 1, 0], [2 / 3, 0, 1 / 3], [0, 1, 0]], rtol=1e-6)
    labels = np.array([[1, 0], [1, 0], [0, 1]], dtype=np.float32)
    start, one, two = scoring.diffuse(walk, labels, 2)
    np.testing.assert_allclose(start, [[1 / 2, 0], [1 / 2, 0], [0, 1]])
    # columns of the labels: (1/2, 1/2, 0) and (0, 0, 1); W times these: (1/2, 1/3, 1/2) and (0, 1/3, 0), over their sums
    np.testing.assert_allclose(one, [[3 / 8, 0], [2 / 8, 1], [3 / 8, 0]], rtol=1e-6)
    expected = walk.toarray() @ one
    np.testing.assert_allclose(two, expected / expected.sum(axis=0), rtol=1e-6)


def naive_diffusion(background, points, classes, support, k, steps):
    """The whole of it by sorting and loops, on unit vectors that are reduced already."""
    nodes = np.concatenate([background, points[support]])
    cosines = nodes @ nodes.T
    w = np.zeros((len(nodes), len(nodes)))
    for i in range(len(nodes)):
        w[i, np.argsort(-cosines[i])[:k]] = 1
    w = w + w.T
    w /= w.sum(axis=1, keepdims=True)
    labels = np.zeros((len(nodes), classes.max() + 1))
    for j, c in enumerate(classes[support]):
        labels[len(background) + j, c] = 1
    labels /= labels.sum(axis=0)
    for _ in range(steps):
        labels = w @ labels
        labels /= labels.sum(axis=0)
    return np.stack([labels[np.argsort(-(nodes @ x))[:k]].sum(axis=0) for x in points[~support]])


@pytest.mark.parametrize("rows", [7, 4096])
def test_diffusion_equals_a_loop_over_a_graph_that_is_made_anew(monkeypatch, rows):
    monkeypatch.setattr(scoring, "NEIGHBOURS", 6)
    monkeypatch.setattr(scoring, "ROWS", rows)
    rng = np.random.default_rng(0)
    background, points = (rng.normal(size=(n, 5)).astype(np.float32) for n in (40, 24))
    classes = np.arange(24) % 4
    diffusion = scoring.Diffusion(background, points, classes)
    support = ranks([str(i) for i in range(24)], classes, seed=0, number=0) < 2
    found = diffusion.scores(support, [1, 4])
    for scores, steps in zip(found, (1, 4), strict=True):
        expected = naive_diffusion(diffusion.background, diffusion.points, classes, support, 6, steps)
        np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-6)
    score = scoring.by_diffusion(diffusion, {2: 4})
    np.testing.assert_array_equal(score(support), found[1])


def test_features_are_reduced_to_the_main_directions_of_the_background():
    rng = np.random.default_rng(0)
    background = rng.normal(size=(300, 400)).astype(np.float32)
    one, two = scoring.reduced(background, background[:7])
    assert one.shape == (300, 256)
    np.testing.assert_allclose(one[:7], two, atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(one, axis=1), 1, rtol=1e-5)
    small = background[:, :9]
    kept, _ = scoring.reduced(small, small)  # nothing is lost of nine
    centred = small - small.mean(axis=0)
    centred /= np.linalg.norm(centred, axis=1, keepdims=True)
    np.testing.assert_allclose(kept @ kept.T, centred @ centred.T, atol=1e-4)


def test_the_number_of_steps_is_chosen_on_classes_to_learn_from(birds, monkeypatch):
    source = make_protocol(options(), birds).source
    asked = []

    class Fake:
        def __init__(self, background, features, classes):
            asked.append((len(background), len(features), classes.max() + 1))

        def scores(self, support, steps):
            return [np.full(((~support).sum(), 2), 0.0, dtype=np.float32) for _ in steps]

    monkeypatch.setattr(scoring, "Diffusion", Fake)
    chosen = scoring.choose_steps(source.features, source, shots=[1, 2], new=4, top=5, seed=0)
    assert asked == [(len(source) - 12, 12, 2)]  # a third of eight classes, six samples each
    assert chosen == {1: 0, 2: 0}  # all alike: the first
    assert scoring.choose_steps(source.features, source, shots=[1, 6], new=4, top=5, seed=0) == {
        1: scoring.USUAL,
        6: scoring.USUAL,
    }


# ---- results -------------------------------------------------------------------------------------------------------


def test_with_one_seed_the_interval_is_students_over_draws():
    values = np.array([[50.0, 52.0, 57.0, 49.0]])
    found = summary(values)
    expected = student.ppf(0.975, 3) * values.std(ddof=1) / 2
    assert (found.mean, found.half, found.n) == (52.0, pytest.approx(expected), 4)
    assert math.isnan(summary(np.array([[50.0]])).half)
    assert str(summary(np.array([[50.0]]))) == "50.0"
    assert summary(np.full((1, 5), 40.0)).half == 0.0


def test_equal_seeds_add_nothing_and_do_not_narrow_the_interval():
    values = np.array([[50.0, 52.0, 57.0, 49.0]])
    assert summary(np.repeat(values, 3, axis=0)).half == pytest.approx(summary(values).half)


def test_the_interval_over_draws_and_seeds_covers_its_mean():
    """Simulated with effects of draws and of seeds: 95 % within chance, where counting all values as independent fails."""
    rng, covered, naive = np.random.default_rng(0), 0, 0
    for _ in range(1000):
        draws, seeds = rng.normal(0, 3, 20), rng.normal(0, 2, 5)
        values = draws + seeds[:, None] + rng.normal(0, 1, (5, 20))
        found = summary(values)
        covered += abs(found.mean) <= found.half
        naive += abs(values.mean()) <= student.ppf(0.975, 99) * values.std(ddof=1) / 10
    assert 0.92 < covered / 1000 < 0.99
    assert naive / 1000 < 0.7


def rows() -> list[Row]:
    found = [Row("nn", 0, d, k, 0.1, 0.4 + 0.1 * k + 0.01 * d) for d in range(3) for k in (1, 2)]
    found += [Row("lht", s, d, k, 0.1, 0.45 + 0.1 * k + 0.01 * d) for s in range(2) for d in range(3) for k in (1, 2)]
    return found


def test_tables_have_the_best_last_and_paired_differences():
    results = collect(rows(), 5, "How.")
    assert results.methods == ["nn", "lht"]
    assert results.gain("lht", 1).mean == pytest.approx(5)
    assert results.gain("lht", 1).half == pytest.approx(0, abs=1e-6)  # draw by draw the same, though draws differ
    text = document(results)
    assert text.startswith("| method | 1 shot | 2 shots |")
    assert "| nn | 51.0 ± 2.5 | 61.0 ± 2.5 |\n| lht | 56.0" in text
    assert "| lht | +5.0 ± 0.0 | +5.0 ± 0.0 |" in text
    assert "How." in text
    alone = collect([row for row in rows() if row.method == "lht"], 5)
    assert "Difference" not in document(alone)


def test_the_file_has_a_row_per_measurement(tmp_path):
    write_rows(tmp_path / "a.csv", rows(), 5)
    lines = (tmp_path / "a.csv").read_text().splitlines()
    assert lines[0] == "method,seed,draw,shots,top1,top5"
    assert lines[1] == "nn,0,0,1,0.100000,0.500000"
    assert len(lines) == 1 + 18
    write_rows(tmp_path / "b.csv", rows(), 1)
    assert (tmp_path / "b.csv").read_text().splitlines()[0] == "method,seed,draw,shots,top1"


# ---- the command line ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--target", "nowhere"], "neither a number nor a readable file"),
        (["--target", "3", "--methods", "nn,lth"], "unknown method 'lth': did you mean lht"),
        (["--target", "3", "--methods", "logistic"], "fitted at once"),
        (["--target", "3", "--methods", "lht:gama=1"], "no option 'gama'"),
        (["--target", "3", "--backbone", "resnet18"], "holds features already"),
        (["--target", "3", "--freeze"], "--freeze is for pictures"),
        (["--target", "3", "--vectors", "no.txt"], "not a readable file of word vectors"),
        (["--target", "3", "--groups", "9,2"], "more groups than the 6 classes"),
        (["--shots", "x"], "--shots is 'x'"),
    ],
)
def test_mistakes_end_with_exit_code_2_and_leave_nothing_behind(embeddings, tmp_path, capsys, more, message):
    out = tmp_path / "out"
    words = ["lowshot", str(embeddings), "--out", str(out), "--top", "2", "--groups", "3,2"]
    with pytest.raises(SystemExit) as stop:
        main([*words, *more])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err.replace("\n", " ")
    assert not out.exists()


def test_a_directory_that_is_in_use_is_refused(embeddings, tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(SystemExit) as stop:
        main(["lowshot", str(embeddings), "--out", str(tmp_path), "--target", "3", "--top", "2"])
    assert stop.value.code == 2
    assert "exists and is not empty" in capsys.readouterr().err
