"""The figures: what they show against plain loops, and that what is drawn can be read."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image
from torch import Tensor, nn

from torchlht.answer.asking import ask
from torchlht.answer.backbones import Backbone, SmallNet, create_backbone
from torchlht.answer.model import Model, Run
from torchlht.data.batches import FeatureSet, ImageSet, members
from torchlht.data.preparing import Preprocess
from torchlht.errors import ConfigError, DataError, RunError
from torchlht.heads.method import Method, create_method
from torchlht.heads.prediction import Prediction
from torchlht.heads.transition.core import sum_children
from torchlht.hierarchy.tree import Hierarchy
from torchlht.learn.options import TrainArgs
from torchlht.learn.training import train
from torchlht.measure.evaluation import run_inputs
from torchlht.measure.metrics import HierarchyMetrics
from torchlht.show.figures import transitions
from torchlht.show.figures.attributes import attribute_figure, cosine_similarity, read_class_attributes, similarity_test
from torchlht.show.figures.confusion import confusion_figure, confusion_matrix, mean_class_recall
from torchlht.show.figures.curves import gamma_figure, read_gamma
from torchlht.show.figures.gradcam import as_batch, class_maps, gradcam, gradcam_figure, presentable, visible
from torchlht.show.figures.transitions import (
    mean_transition,
    mean_transitions,
    on_tree,
    ordered,
    superscript,
    transition_figure,
    transition_panels,
)
from torchlht.show.look import figure_png, fitting, groups, plain, save_figure, spread, taxonomy_order
from trees import hierarchies, normal, paths, quick, random_hierarchy, random_labels, random_method, seeds

TREE = random_hierarchy(np.random.default_rng(0), (9, 5, 3))
BIRDS = random_hierarchy(np.random.default_rng(1), (200, 38, 13))
KINDS = ["low_rank", "full", "static", "fixed"]


def features(n: int, tree: Hierarchy = TREE, seed: int = 0, missing: float = 0.0) -> FeatureSet:
    rng = np.random.default_rng(seed)
    return FeatureSet(normal(rng, n, 5), random_labels(tree, rng, n, missing))


def opened(png: bytes | Path) -> Image.Image:
    return Image.open(io.BytesIO(png) if isinstance(png, bytes) else png).convert("RGB")


def names_of(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def assert_readable(figure: Figure, widest: int = 2600) -> None:
    """A valid picture of a sensible size, with something on it, in which no two texts of a panel lie on each other."""
    picture = opened(figure_png(figure))
    assert 300 < picture.width < widest
    assert 200 < picture.height < 2600
    assert len(picture.getcolors(2**24)) > 20
    for axes in figure.axes:
        texts = [text for text in (*axes.texts, axes.title, axes._left_title) if text.get_text()]
        boxes = [Text.get_window_extent(text).shrunk(0.98, 0.9) for text in texts]
        for i, box in enumerate(boxes):
            for other in range(i):
                assert not box.overlaps(boxes[other]), (texts[i].get_text(), texts[other].get_text())


# ---- the look ------------------------------------------------------------------------------------------------------


@quick
@given(hierarchies())
def test_in_the_order_of_the_tree_every_ancestor_is_one_block(tree):
    for level in range(len(tree)):
        order = taxonomy_order(tree, level)
        assert sorted(order) == list(range(tree.sizes[level]))
        for by in range(level, len(tree)):
            above = tree.ancestors(by, of=level)[order]
            assert 1 + np.count_nonzero(np.diff(above)) == len(set(above.tolist()))
            found = groups(tree, level, by)
            assert [g.label for g in found] == list(dict.fromkeys(above.tolist()))
            assert all((above[g.start : g.stop] == g.label).all() for g in found)
            assert [g.stop for g in found[:-1]] == [g.start for g in found[1:]]


@quick
@given(st.lists(st.floats(0, 100), max_size=12), st.floats(0.1, 30))
def test_spread_names_keep_their_distance_and_order_and_stay_inside(places, gap):
    places = np.sort(np.array(places, dtype=float))
    moved = spread(places, gap, 100.0)
    assert len(moved) == len(places)
    assert (np.diff(moved) >= gap - 1e-9).all()
    if len(places) * gap <= 100:
        assert (moved >= gap / 2 - 1e-9).all()
        assert (moved <= 100 - gap / 2 + 1e-9).all()


def test_names_that_have_room_do_not_move():
    np.testing.assert_allclose(spread(np.array([10.0, 30.0, 80.0]), 15, 100), [10, 30, 80])
    np.testing.assert_allclose(spread(np.array([50.0, 50.0]), 10, 100), [45, 55])


def test_class_names_as_people_write_them():
    assert plain("001.Black_footed_Albatross") == "Black footed Albatross"
    assert plain("747-400") == "747-400"
    assert plain("12") == "12"
    assert len(plain("x" * 80)) == 28


@pytest.mark.parametrize("cells", [3, 10, 200, 1500])
def test_cells_are_whole_pixels(cells):
    pixels = fitting(cells, 4.0) * 150 / cells
    assert pixels == pytest.approx(round(pixels))
    assert pixels >= 1


def test_a_figure_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    figure = transition_figure(TREE, {})
    path = save_figure(figure, tmp_path / "deep" / "s.png")
    assert opened(path).width > 300
    before = path.read_bytes()
    monkeypatch.setattr(Figure, "savefig", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save_figure(figure, path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["s.png"]


# ---- inputs --------------------------------------------------------------------------------------------------------


def test_predictions_come_in_batches_without_gradients_and_leave_the_network_as_it_was():
    method = random_method("lht", TREE, np.random.default_rng(0)).train()
    data = features(7)
    found = []
    for prediction, labels in ask(method, data, samples=[6, 0, 3], batch_size=2):
        assert torch.is_grad_enabled()  # nothing leaks out of the generator
        assert not prediction.log_probs[0].requires_grad
        found.append((prediction.log_probs[0], labels))
    assert method.training
    assert [len(p) for p, _ in found] == [2, 1]
    expected = method.eval()(data.x[[6, 0, 3]]).log_probs[0]
    torch.testing.assert_close(torch.cat([p for p, _ in found]), expected.detach())
    torch.testing.assert_close(torch.cat([y for _, y in found]), data.labels[[6, 0, 3]])
    with pytest.raises(DataError, match="no samples"):
        next(ask(method, data, samples=[]))


def test_inputs_of_a_run_on_features(embeddings, tmp_path):
    run = train(
        TrainArgs(str(embeddings), out=tmp_path / "run", epochs=1, mask=0.5, quiet=True, track=False, option={"width": 12})
    )
    model, _, data = run_inputs(run)
    assert isinstance(data, FeatureSet)
    assert len(data) == 60
    assert (data.labels >= 0).all()
    assert len(run_inputs(run, "all").data) == 180
    matrix = mean_transition(model, data)
    np.testing.assert_allclose(matrix.sum(axis=0), 1, rtol=1e-6)
    assert sum(len(members(data, 1, c)) for c in range(model.hierarchy.sizes[1])) == 60
    with pytest.raises(DataError, match="val"):
        run_inputs(run, "val")
    assert_readable(gamma_figure([run]))
    curves = read_gamma(run)
    assert set(curves.start.values()) == {6.0}
    assert {name: values[-1] for name, values in curves.levels.items()} == pytest.approx(
        {name.removeprefix("gamma_"): value for name, value in model.method.scalars().items()}
    )


def test_a_frozen_run_gives_the_features_it_kept(pictures, own_cache, tmp_path):
    args = TrainArgs(
        str(pictures), out=tmp_path / "run", backbone="small", freeze=True, epochs=1, batch_size=16, option={"width": 12}
    )
    run = train(TrainArgs.from_dict(args.to_dict() | {"quiet": True, "track": False, "levels": "order,family,species"}))
    model, _, kept = run_inputs(run)
    same, _, images = run_inputs(run, pictures=True)
    assert isinstance(kept, FeatureSet)
    assert isinstance(images, ImageSet)
    np.testing.assert_allclose(mean_transition(model, kept), mean_transition(same, images), atol=1e-6)
    np.testing.assert_array_equal(confusion_matrix(model, kept), confusion_matrix(same, images))
    for file in (own_cache / "features").iterdir():
        file.unlink()
    assert isinstance(run_inputs(run).data, ImageSet)  # not kept any more: pictures do as well


# ---- transitions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", [0, 1])
def test_the_mean_transition_is_the_mean_of_a_loop(kind, level, monkeypatch):
    rows, columns = TREE.sizes[level + 1], TREE.sizes[level]
    monkeypatch.setattr(transitions, "NUMBERS_AT_ONCE", 3 * rows * columns)  # batches of 3 matrices
    method = random_method("lht", TREE, np.random.default_rng(2), transition=kind)
    data, chosen = features(8), [5, 1, 7, 0, 2]
    for samples in (None, chosen):
        total = np.zeros((rows, columns))
        used = range(8) if samples is None else samples
        for i in used:
            total += method(data.x[i : i + 1]).transition(level)[0].detach().numpy()
        found = mean_transition(method, data, level, samples=samples)
        np.testing.assert_allclose(found, total / len(used), rtol=1e-10, atol=1e-15)
        np.testing.assert_allclose(found.sum(axis=0), 1, rtol=1e-10)
    np.testing.assert_allclose(mean_transition(method, data.x, level), mean_transition(method, data, level))
    both = mean_transitions(method, data, [1, 0], samples=chosen)
    np.testing.assert_allclose(both[1 - level], mean_transition(method, data, level, samples=chosen))


@pytest.mark.parametrize(("name", "options"), [("lht", {"transition": "fixed"}), ("marginal", {})])
def test_where_nothing_is_learned_the_figure_shows_the_tree_twice(name, options):
    method = random_method(name, TREE, np.random.default_rng(3), **options)
    panels = transition_panels(method, features(4))
    figure = transition_figure(TREE, panels)
    drawn = [np.asarray(axes.images[0].get_array()) for axes in figure.axes[:2]]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    np.testing.assert_array_equal(drawn[0], ordered(TREE, 0, TREE.matrix(0)))
    assert on_tree(TREE, 0, panels[next(iter(panels))]) == 1.0
    stairs = [int(np.flatnonzero(column)[0]) for column in drawn[0].T]
    assert stairs == sorted(stairs)  # a staircase: rows and columns are in the order of the tree


def test_panels_of_samples_classes_and_all():
    method = random_method("lht", TREE, np.random.default_rng(4))
    data = FeatureSet(normal(np.random.default_rng(5), 12, 5), paths(TREE, np.random.default_rng(5), 12))
    label = int(data.labels[3, 1])
    panels = transition_panels(method, data, 1, images=[3], classes=[label])
    single, of_class, whole = panels.values()
    assert all(title.startswith("T³") for title in panels)
    np.testing.assert_allclose(single, method(data.x[3:4]).transition(1)[0].detach().numpy())
    np.testing.assert_allclose(of_class, mean_transition(method, data, 1, samples=members(data, 1, label)))
    np.testing.assert_allclose(whole, mean_transition(method, data, 1))
    figure = transition_figure(TREE, panels, 1, title="three ways")
    assert figure.axes[0].get_title(loc="left") == "S³, the tree"
    assert_readable(figure)
    absent = next(c for c in range(TREE.sizes[0]) if c not in data.labels[:, 0])
    with pytest.raises(DataError, match="no samples of"):
        transition_panels(method, data, classes=[absent])


@pytest.mark.parametrize("name", ["multihead", "lht-c2f"])
def test_methods_without_transitions_say_so(name):
    with pytest.raises(ConfigError, match=f"method {name} has no transitions"):
        mean_transition(random_method(name, TREE, np.random.default_rng(0)), features(2))


def test_a_level_without_a_transition_is_refused():
    with pytest.raises(ConfigError, match="no transition from level 2"):
        mean_transition(random_method("lht", TREE, np.random.default_rng(0)), features(2), 2)


@pytest.mark.parametrize("scale", ["root", "log"])
def test_a_transition_of_200_classes_is_labelled_by_groups(scale):
    figure = transition_figure(BIRDS, {"T², anything": np.full((38, 200), 1 / 38)}, scale=scale)
    assert_readable(figure)
    assert len(names_of(figure.axes[1])) < 200
    assert superscript(12) == "¹²"


# ---- Grad-CAM ------------------------------------------------------------------------------------------------------


class LinearHead(Method):
    """log p¹ = log-softmax of a linear layer; coarser levels are sums."""

    name = "linear"

    def __init__(self, in_features: int, hierarchy: Hierarchy) -> None:
        super().__init__(in_features, hierarchy)
        self.linear = nn.Linear(in_features, hierarchy.sizes[0])

    def forward(self, x: Tensor) -> Prediction:
        log_probs = [torch.log_softmax(self.linear(x), dim=1)]
        for k, size in enumerate(self.hierarchy.sizes[1:]):
            log_probs.append(sum_children(log_probs[-1], self.parents(k), size))
        return Prediction(tuple(log_probs))


def tiny_model(method: str | type[Method] = LinearHead, **options: object) -> Model:
    """A float64 model of two convolutions with random weights."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=2), nn.ReLU(inplace=True), nn.Conv2d(6, 4, 3), nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip
    backbone = Backbone("tiny", network, Preprocess(size=16, resize=16), pretrained=False)
    if isinstance(method, str):
        head = random_method(method, TREE, np.random.default_rng(1), in_features=4, **options)
    else:
        head = method(4, TREE)
    return Model(backbone, head, options={}).double()


IMAGES = normal(np.random.default_rng(6), 5, 3, 16, 16)


def test_grad_cam_of_a_linear_head_is_its_weights_times_the_map():
    model = tiny_model().train()
    found = class_maps(model, IMAGES)
    assert model.training
    maps = model.backbone.network[:4](IMAGES)  # (B, 4, 5, 5)
    weight = model.method.linear.weight
    for n in range(5):
        label = int(model(IMAGES).log_probs[0][n].argmax())
        assert int(found.classes[n, 0]) == label
        by_hand = sum(weight[label, c] / 25 * maps[n, c] for c in range(4))
        torch.testing.assert_close(found.maps[0][n], by_hand.detach())
        p = model(IMAGES).log_probs
        torch.testing.assert_close(found.probabilities[n], torch.stack([p[k][n, found.classes[n, k]].exp() for k in range(3)]))
        positive = torch.nn.functional.interpolate(by_hand.clamp(min=0)[None, None], (16, 16), mode="bilinear")[0, 0]
        spread_out = (positive - positive.min()) / (positive.max() - positive.min())
        torch.testing.assert_close(gradcam(model, IMAGES)[0][n], spread_out.nan_to_num().detach())
    assert all(p.grad is None for p in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


def test_grad_cam_of_a_coarse_level_is_the_gradient_of_log_p():
    model = tiny_model()
    found = class_maps(model, IMAGES)
    maps = model.backbone.network[:4](IMAGES).detach().requires_grad_()
    prediction = model.method(maps.mean(dim=(2, 3)))
    for k in (1, 2):
        target = prediction.log_probs[k].gather(1, found.classes[:, k : k + 1]).sum()
        gradient = torch.autograd.grad(target, maps, retain_graph=True)[0]
        by_hand = torch.einsum("bc,bchw->bhw", gradient.mean(dim=(2, 3)), maps)
        torch.testing.assert_close(found.maps[k], by_hand.detach())


def test_asked_about_other_classes_it_explains_those():
    model, classes = tiny_model(), torch.tensor([TREE.path(4)] * 5)
    found = class_maps(model, IMAGES, classes=classes)
    maps = model.backbone.network[:4](IMAGES)
    by_hand = torch.einsum("c,bchw->bhw", model.method.linear.weight[4] / 25, maps)
    torch.testing.assert_close(found.maps[0], by_hand.detach())
    torch.testing.assert_close(found.classes, classes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shared", ["shared", "split"])
def test_the_ways_through_t_and_through_p1_add_up(kind, shared):
    model = tiny_model("lht", transition=kind, features=shared)
    both, t, p1 = (class_maps(model, IMAGES, through=way).maps for way in ("both", "T", "p1"))
    for k in range(3):
        torch.testing.assert_close(t[k] + p1[k], both[k], rtol=1e-7, atol=1e-12)
        moves = kind in ("low_rank", "full") and k > 0
        assert bool(t[k].abs().max() > 0) == moves  # a transition that does not see the picture has no gradient
        assert p1[k].abs().max() > 0


def test_what_is_presentable_does_not_depend_on_scale_and_bears_nothing_at_all():
    raw = normal(np.random.default_rng(7), 3, 4, 4)
    shown = presentable(raw, (9, 9))
    assert shown.shape == (3, 9, 9)
    torch.testing.assert_close(shown.amax(dim=(1, 2)), torch.ones(3).double())
    assert shown.min() == 0
    for factor in (1e-30, 7.0, 1e12):
        torch.testing.assert_close(presentable(raw * factor, (9, 9)), shown)
    for nothing in (torch.zeros(2, 4, 4), -torch.ones(2, 4, 4), torch.full((2, 4, 4), 3.0)):
        assert not presentable(nothing, (9, 9)).any()


def with_head(backbone: Backbone, name: str = "lht") -> Model:
    torch.manual_seed(0)
    return Model(backbone, create_method(name, backbone.num_features, TREE, width=12), options={}).eval()


@pytest.mark.parametrize(("name", "places"), [("small", 4), ("efficientnet_lite0", 2), ("resnet18", 2), ("test_vit", 10)])
def test_the_last_map_is_found_in_every_kind_of_backbone(name, places):
    model = with_head(create_backbone(name, pretrained=False))
    size = {"small": 56, "test_vit": 160}.get(name, 64)
    x = torch.randn(2, 3, size, size)
    for found in class_maps(model, x).maps:
        assert found.shape == (2, places, places)
        assert found.abs().max() > 0
    assert [m.shape for m in gradcam(model, x)] == [(2, size, size)] * 3


def test_swin_keeps_its_channels_last():
    model = with_head(create_backbone("swin_tiny_patch4_window7_224", pretrained=False))
    x = torch.randn(1, 3, 224, 224)
    found, network = class_maps(model, x), model.backbone.network
    maps = network.forward_features(x).detach().requires_grad_()  # (B, h, w, c)
    prediction = model.method(network.forward_head(maps))
    gradient = torch.autograd.grad(prediction.log_probs[2][0, found.classes[0, 2]], maps)[0]
    by_hand = torch.einsum("bc,bhwc->bhw", gradient.mean(dim=(1, 2)), maps.detach())
    torch.testing.assert_close(found.maps[2], by_hand, rtol=1e-3, atol=1e-7)


def test_what_grad_cam_cannot_look_into():
    with pytest.raises(ConfigError, match="takes features"):
        gradcam(Model(create_backbone("none"), create_method("lht", 5, TREE), options={}), torch.zeros(1, 5))
    with pytest.raises(ConfigError, match="method multihead has no transitions"):
        class_maps(tiny_model("multihead"), IMAGES, through="T")
    with pytest.raises(ConfigError, match="did you mean both"):
        class_maps(tiny_model(), IMAGES, through="bot")
    with pytest.raises(DataError, match="no pictures"):
        gradcam(tiny_model(), [])
    with pytest.raises(DataError, match="a batch is"):
        gradcam(tiny_model(), torch.zeros(3, 16, 16))
    flat = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 4))
    with pytest.raises(ConfigError, match="no feature map"):
        class_maps(with_head(Backbone("flat", flat, Preprocess(size=16, resize=16), pretrained=False)), IMAGES.float())


def test_the_grad_cam_figure_has_a_row_per_picture_and_a_column_per_level(pictures):
    model = with_head(Backbone("small", SmallNet(), Preprocess(size=56, resize=64), pretrained=False))
    files = sorted(pictures.rglob("*.png"))[:3]
    labels = torch.tensor([TREE.path(0), (-1, *TREE.path(1)[1:]), (-1, -1, -1)])
    for way in ("both", "T", "p1"):
        figure = gradcam_figure(model, files, labels=labels, through=way)
        assert len(figure.axes) == 3 * 4
    assert_readable(figure)
    titles = [axes.get_title(loc="left") for axes in figure.axes[:4]]
    assert titles == ["picture", *reversed(TREE.levels)]
    shown = visible(as_batch(model, files), model.preprocess)
    assert ((shown >= 0) & (shown <= 1)).all()
    picture = Image.open(files[0]).convert("RGB").resize((75, 64), Image.Resampling.BILINEAR)
    centre = np.asarray(picture)[4:60, 9:65] / 255
    np.testing.assert_allclose(shown[0].numpy(), centre, atol=1e-5)


# ---- γ -------------------------------------------------------------------------------------------------------------


def make_run(folder: Path, name: str = "lht", epochs: int = 4, shift: float = 0.0, **options: object) -> Path:
    """A run as it is after some epochs, with made-up γ."""
    method = create_method(name, 5, TREE, **options)
    Model(create_backbone("none"), method, options=options).write_config(folder)
    gammas = [f"gamma_{level}" for level in TREE.levels[1:]] if method.scalars() else []
    Run(folder).write_history(
        [{"epoch": e + 1.0, **{g: e + shift + 10 * i for i, g in enumerate(gammas)}} for e in range(epochs)]
    )
    return folder


def test_gamma_starts_where_the_run_did_and_follows_its_history(tmp_path):
    runs = [make_run(tmp_path / "a", gamma=1.0), make_run(tmp_path / "b", gamma=1.0, shift=2.0, epochs=6)]
    figure = gamma_figure(runs, title="made up")
    assert_readable(figure)
    thick = {
        line.get_label(): line.get_ydata() for line in figure.axes[0].lines if str(line.get_label()).startswith("transition")
    }
    assert list(thick) == [f"transition to {TREE.levels[k]}" for k in (2, 1)]  # coarse → fine
    np.testing.assert_allclose(thick[f"transition to {TREE.levels[1]}"], [1.0, 1.0, 2.0, 3.0, 4.0])
    thin = [line for line in figure.axes[0].lines if line.get_linewidth() == 0.6 and len(line.get_xdata()) > 2]
    assert sorted(len(line.get_xdata()) for line in thin) == [5, 5, 7, 7]
    assert read_gamma(make_run(tmp_path / "c", "lht-paper")).start[TREE.levels[1]] == 1.0  # the variant's own default
    assert len(gamma_figure(runs[:1]).axes[0].lines) == 4  # two levels, the initial value, and a line through it


def test_runs_without_gamma_say_so(tmp_path):
    with pytest.raises(RunError, match=r"has no γ.*not multihead"):
        read_gamma(make_run(tmp_path / "m", "multihead"))
    with pytest.raises(RunError, match="not a run"):
        read_gamma(tmp_path)
    (make_run(tmp_path / "n") / "history.csv").unlink()
    with pytest.raises(RunError, match="no history"):
        read_gamma(tmp_path / "n")
    with pytest.raises(ConfigError, match="no runs"):
        gamma_figure([])


# ---- confusion -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("rule", ["own", "backtrack"])
def test_the_confusion_matrix_is_that_of_a_loop(level, rule):
    method, data = random_method("lht", TREE, np.random.default_rng(8)), features(40, missing=0.3)
    expected = np.zeros((TREE.sizes[level], TREE.sizes[level]), dtype=int)
    for n in range(40):
        log_probs = method(data.x[n : n + 1]).log_probs
        said = int(log_probs[level].argmax()) if rule == "own" else int(TREE.ancestors(level)[int(log_probs[0].argmax())])
        if data.labels[n, level] >= 0:
            expected[data.labels[n, level], said] += 1
    found = confusion_matrix(method, data, level, rule=rule, batch_size=7)
    np.testing.assert_array_equal(found, expected)
    if rule == "own":
        counted = HierarchyMetrics(TREE)
        counted.update(method(data.x), data.labels)
        recalls = {entry["name"]: entry["mean_class_recall"] for entry in counted.compute()["levels"]}
        assert mean_class_recall(found) == pytest.approx(recalls[TREE.levels[level]])


def test_the_confusion_figure_is_in_the_order_of_the_tree_and_in_shares():
    rng = np.random.default_rng(9)
    counts = rng.integers(0, 5, (9, 9))
    counts[4] = 0  # a class without samples
    figure = confusion_figure({"one": counts, "two": np.diag(np.arange(1, 10))}, TREE, title="made up")
    order = taxonomy_order(TREE, 0)
    drawn = figure.axes[0].images[0].get_array()
    for i, true in enumerate(order):
        for j, said in enumerate(order):
            if true == 4:
                assert drawn.mask[i, j]
            else:
                assert drawn[i, j] == pytest.approx(counts[true, said] / counts[true].sum())
    np.testing.assert_array_equal(np.asarray(figure.axes[1].images[0].get_array()), np.eye(9))
    assert figure.axes[1].get_title(loc="left") == "two\nmean class recall 100.0%"
    assert_readable(figure)


def test_three_confusions_of_200_classes_are_readable():
    rng = np.random.default_rng(10)
    several = {name: np.diag(rng.integers(1, 30, 200)) + rng.integers(0, 2, (200, 200)) for name in ("a", "b", "c")}
    figure = confusion_figure(several, BIRDS)
    assert_readable(figure)
    assert len(names_of(figure.axes[0])) == 2 * 38 + 1  # families on both sides, and the line above
    wide = Hierarchy.from_parents([list(range(150)) + [0] * 850])  # 150 families, one of them with 851 of 1000 species
    assert_readable(confusion_figure({"a": np.eye(1000, dtype=int)}, wide))
    single = Hierarchy.from_parents([], classes=[[f"class {i}" for i in range(120)]])
    assert_readable(confusion_figure({"a": np.eye(120, dtype=int)}, single))


def test_matrices_that_cannot_be_drawn():
    with pytest.raises(ConfigError, match="no confusion"):
        confusion_figure({}, TREE)
    with pytest.raises(DataError, match="lht: a"):
        confusion_figure({"lht": np.eye(4, dtype=int)}, TREE)
    with pytest.raises(DataError, match="no sample"):
        confusion_figure({"lht": np.zeros((9, 9), dtype=int)}, TREE)


# ---- attributes ----------------------------------------------------------------------------------------------------


def cub_folder(root: Path, rows: list[str], names: list[str] | None = None) -> Path:
    (root / "attributes").mkdir(parents=True)
    (root / "attributes" / "class_attribute_labels_continuous.txt").write_text("\n".join(rows) + "\n")
    if names:
        (root / "classes.txt").write_text("".join(f"{i + 1} {name}\n" for i, name in enumerate(names)))
    return root


def test_attributes_are_put_in_the_order_of_the_tree(tmp_path):
    tree = Hierarchy.from_paths([("f", "b"), ("f", "a"), ("g", "c")], levels=("family", "species"))
    table = {"a": [1.0, 2.5], "b": [3.0, 4.0], "c": [0.0, 1e-3]}
    folder = cub_folder(tmp_path / "CUB", [" ".join(map(str, table[name])) for name in "cab"], list("cab"))
    found = read_class_attributes(folder, tree)
    np.testing.assert_array_equal(found, [table[name] for name in tree.classes[0]])
    np.testing.assert_array_equal(read_class_attributes(folder), [table[name] for name in "cab"])
    other = Hierarchy.from_paths([("f", "b"), ("f", "a"), ("g", "d")], levels=("family", "species"))
    with pytest.raises(DataError, match="no class 'd'"):
        read_class_attributes(folder, other)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["1 2", "3"], "line 2: 1 numbers, but line 1 has 2"),
        (["1 2", "3 x"], "line 2: could not convert"),
        (["1 2", "3 nan"], "line 2: a number is infinite or missing"),
        ([""], "no numbers"),
        (["1 2", "3 4"], "2 rows, but the tree has 9"),
    ],
)
def test_attributes_that_cannot_be_read(tmp_path, rows, message):
    with pytest.raises(DataError, match=message):
        read_class_attributes(cub_folder(tmp_path / "CUB", rows), TREE)


def test_attributes_that_are_not_there(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_class_attributes(tmp_path)
    with pytest.raises(DataError, match="cannot be compared"):
        cosine_similarity(np.eye(9)[:, :8], TREE)
    with pytest.raises(DataError, match="9 classes"):
        cosine_similarity(np.ones((3, 4)), TREE)
    with pytest.raises(DataError, match="similarities"):
        similarity_test(np.eye(3), TREE)
    with pytest.raises(ConfigError, match="permutations"):
        similarity_test(np.eye(9), TREE, permutations=0)


@quick
@given(hierarchies(levels=(2, 4), extra=4), seeds)
def test_group_means_and_p_values_are_those_of_a_loop(tree, seed):
    rng, size = np.random.default_rng(seed), tree.sizes[0]
    if size < 2:
        return
    attributes = rng.random((size, 6)) + 0.1
    similarity = cosine_similarity(attributes, tree)
    for a in range(size):
        for b in range(size):
            product = attributes[a] @ attributes[b] / np.linalg.norm(attributes[a]) / np.linalg.norm(attributes[b])
            assert similarity[a, b] == pytest.approx(product)
    by_height: dict[int, list[float]] = {}
    for a in range(size):
        for b in range(a):
            by_height.setdefault(int(tree.lca_height(np.array(a), np.array(b))), []).append(similarity[a, b])
    found = similarity_test(similarity, tree, permutations=20)
    assert [g.pairs for g in found] == [len(by_height[h]) for h in sorted(by_height)]
    np.testing.assert_allclose([g.mean for g in found], [np.mean(by_height[h]) for h in sorted(by_height)])
    assert all(1 / 21 - 1e-9 <= g.p <= 1 for g in found)
    assert similarity_test(similarity, tree, permutations=20) == found  # the same seed, the same answer


def test_the_permutation_test_is_exact_where_all_shuffles_can_be_counted():
    tree = Hierarchy.from_parents([[0, 0, 1, 1]])  # three ways to pair four classes, of which one is the tree's
    similarity = np.eye(4)
    similarity[0, 1] = similarity[1, 0] = 0.9
    within, between = similarity_test(similarity, tree, permutations=6000)
    assert within.p == pytest.approx(1 / 3, abs=0.03)
    assert between.p == pytest.approx(1 / 3, abs=0.03)
    assert within.mean == pytest.approx(0.45)
    assert between.mean == 0


def test_structure_is_detected_and_chance_is_not():
    rng = np.random.default_rng(11)
    tree = random_hierarchy(rng, (60, 15, 5))
    orders, families = rng.normal(size=(5, 20)), rng.normal(size=(15, 20))
    attributes = orders[tree.ancestors(2)] + families[tree.parents[0]] + rng.normal(size=(60, 20))
    found = similarity_test(cosine_similarity(attributes, tree), tree, permutations=999)
    assert [g.name for g in found] == ["same level2", "same level1, other level2", "other level1"]
    assert all(g.p == pytest.approx(0.001) for g in found)
    assert found[0].mean > found[1].mean > found[2].mean
    p = [
        g.p
        for _ in range(40)
        for g in similarity_test(cosine_similarity(rng.normal(size=(60, 20)), tree), tree, permutations=99)[:1]
    ]
    assert 0.35 < np.mean(p) < 0.65
    assert np.mean(np.array(p) <= 0.1) < 0.3


@pytest.mark.parametrize("tree", [TREE, BIRDS])
def test_the_attribute_figure_is_in_the_order_of_the_tree(tree):
    similarity = cosine_similarity(np.random.default_rng(12).random((tree.sizes[0], 8)), tree)
    figure = attribute_figure(similarity, tree, similarity_test(similarity, tree, permutations=50))
    order = taxonomy_order(tree, 0)
    np.testing.assert_allclose(np.asarray(figure.axes[0].images[0].get_array()), similarity[np.ix_(order, order)])
    assert_readable(figure)
