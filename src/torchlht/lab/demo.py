"""A drawn demo dataset: birds whose look follows their place in the tree.

Pose, light, scenery and individual variation differ in every picture, so that orders are easy to tell apart, families less
so, and sister species are truly confusable. What distinguishes the birds is declared in `birds`.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from torchlht.errors import DataError
from torchlht.files import cache_dir, csv_text
from torchlht.lab.birds import (
    BARK,
    FAMILIES,
    INK,
    IRIS,
    LEGS,
    LEVELS,
    LIMBS,
    MARKS,
    ROLES,
    SCENES,
    SPECIES,
    Colour,
    Family,
    Shape,
    Species,
    Stroke,
)

Array = NDArray[np.float64]
Palette = Mapping[str, Colour]
SPLITS: tuple[str, ...] = ("train", "test")

OVERSAMPLING = 3  # birds are drawn this much larger and then reduced, which smooths their edges
SHAPE_SPREAD = 0.06  # individual variation of proportions, relative
MARK_SPREAD = 0.18  # individual variation of a mark's strength, relative
LIGHTNESS_SPREAD = 11.0  # individual variation of the whole plumage, in 8-bit steps
HUE_SPREAD = 5.0  # individual variation of each colour channel
WARMTH_SPREAD = 0.04  # variation of the white balance, relative
OCCLUDED = 0.3  # share of the pictures with a leaf or a reed in front


def _rgb(code: str) -> Colour:
    """The colour written as six hex digits."""
    return int(code[0:2], 16), int(code[2:4], 16), int(code[4:6], 16)


def _mix(first: Colour, second: Colour, share: float) -> Colour:
    """`first` with `share` of it replaced by `second`."""
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(first, second, strict=True))
    return red, green, blue


def _direction(degrees: float) -> Array:
    """Unit vector at an angle above the horizon; the y axis points down, as in the picture."""
    return np.array([np.cos(np.radians(degrees)), -np.sin(np.radians(degrees))])


@lru_cache
def _catmull_rom(steps: int) -> Array:
    """Weights of four successive points at equal steps between the middle two."""
    t = np.arange(steps)[:, None] / steps
    return np.hstack([-t + 2 * t**2 - t**3, 2 - 5 * t**2 + 3 * t**3, t + 4 * t**2 - 3 * t**3, t**3 - t**2]) / 2


def _smooth(points: Array, *, closed: bool, steps: int = 6) -> Array:
    """Catmull-Rom curve through the points (of any dimension)."""
    ends = (points[-1:], points[:2]) if closed else (2 * points[:1] - points[1:2], 2 * points[-1:] - points[-2:-1])
    padded = np.concatenate([ends[0], points, ends[1]])
    count = len(padded) - 3
    windows = np.stack([padded[i : i + count] for i in range(4)], axis=1)
    curve: Array = (_catmull_rom(steps) @ windows).reshape(count * steps, -1)
    return curve if closed else np.concatenate([curve, points[-1:]])


@dataclass(frozen=True)
class Brush:
    """Draws on an image in the bird's own units."""

    draw: ImageDraw.ImageDraw
    unit: float
    origin: Array

    def on(self, image: Image.Image) -> Brush:
        """The same brush on another image."""
        return replace(self, draw=ImageDraw.Draw(image))

    def area(self, points: Array, fill: Colour | int) -> None:
        """Fill the outline."""
        self.draw.polygon((points * self.unit + self.origin).ravel().tolist(), fill=fill)

    def line(self, points: Array, fill: Colour | int, width: float) -> None:
        """Draw a line of the given width through the points."""
        path = (points * self.unit + self.origin).ravel().tolist()
        self.draw.line(path, fill=fill, width=max(1, round(width * self.unit)), joint="curve")

    def discs(self, centres: Array, radii: Array | float, fill: Colour | int) -> None:
        """Fill circles; a dense row of them makes a limb or a body."""
        radius = np.broadcast_to(np.asarray(radii), len(centres))[:, None]
        boxes = np.hstack([centres - radius, centres + radius]) * self.unit + np.tile(self.origin, 2)
        for box in boxes.tolist():
            self.draw.ellipse(box, fill=fill)


@dataclass(frozen=True)
class Pose:
    """One individual's posed body, facing right, in units of the trunk's length."""

    shape: Shape
    spine: Array  # from the rump to the nape
    radius: Array  # of the body around each point of the spine
    belly: Array  # unit vectors from the spine towards the underside
    frames: Mapping[str, Array]  # origin, first and second axis of head, wing and tail

    def at(self, part: str, points: Sequence[tuple[float, float]] | Array) -> Array:
        """Where points of a part's frame are.

        On the body the frame is (share of the way from the rump to the nape, from -1 on the back to 1 on the belly).
        """
        local = np.asarray(points, dtype=np.float64)
        if part in self.frames:
            return np.asarray(self.frames[part][0] + local @ self.frames[part][1:])
        index = (local[:, 0].clip(0, 1) * (len(self.spine) - 1)).round().astype(int)
        return np.asarray(self.spine[index] + (local[:, 1] * self.radius[index])[:, None] * self.belly[index])

    def legs(self) -> Array:
        """Hip and foot of both legs: an array (leg, end, xy)."""
        hips = self.at("body", ((0.28, 0.6), (0.36, 0.6)))
        ground = float(hips[:, 1].max()) + 0.15 * self.shape.depth + self.shape.legs
        return np.stack([hips, np.column_stack([hips[:, 0] + (0.04, 0.08), (ground, ground + 0.01)])], axis=1)


def _individual(shape: Shape, rng: np.random.Generator) -> Shape:
    """The shape of one bird of the kind, in a posture of the moment."""
    spread = np.exp(rng.normal(0, SHAPE_SPREAD, 7))
    length, angle, width = shape.neck
    return replace(
        shape,
        posture=shape.posture + rng.normal(0, 6),
        depth=shape.depth * spread[0],
        neck=(length * spread[1] * rng.uniform(0.8, 1.15), angle + rng.normal(0, 9), width),
        head=shape.head * spread[2],
        bill=(shape.bill[0] * spread[3], shape.bill[1] * spread[4], *shape.bill[2:]),
        tail=(shape.tail[0] * spread[5], shape.tail[1] * rng.uniform(0.8, 1.3)),
        legs=shape.legs * spread[6],
    )


def _pose(shape: Shape, rng: np.random.Generator) -> Pose:
    """Lay the spine through trunk and neck, and put head, wing and tail on it."""
    axis, down = _direction(shape.posture), -_direction(shape.posture + 90)
    (neck, angle, width), depth = shape.neck, shape.depth
    base = 0.3 * axis - 0.1 * depth * down
    head = base + (neck + 0.08) * _direction(angle)
    bend = base + 0.55 * (head - base) + 0.12 * neck * _direction(angle - 90)  # a long neck swings forward
    knots = np.array([-0.52 * axis, -0.3 * axis, 0.04 * down, 0.24 * axis, bend, head])
    radii = np.array([0.05, 0.3 * depth, 0.5 * depth, 0.44 * depth, width, min(shape.head, width * 1.1)])
    curve = _smooth(np.column_stack([knots, radii]), closed=False, steps=7)
    tangent = np.gradient(curve[:, :2], axis=0)
    tangent /= np.linalg.norm(tangent, axis=1, keepdims=True)
    gaze = rng.normal(2, 9)
    skull = np.array([head, shape.head * _direction(gaze), shape.head * _direction(gaze + 90)])
    wing = np.array([base, shape.wing[0] * (0.06 * down - axis), shape.wing[1] * down])
    tail = np.array([-0.4 * axis - 0.04 * down, -(shape.tail[0] + 0.1) * axis, shape.tail[1] / 2 * down])
    frames = {"head": skull, "crown": skull, "wing": wing, "tail": tail}
    return Pose(shape, curve[:, :2], curve[:, 2], np.column_stack([-tangent[:, 1], tangent[:, 0]]), frames)


def _paint(stroke: Stroke, strength: float, brush: Brush, pose: Pose, palette: Palette) -> None:
    """Draw one stroke at the given strength."""
    points, colour = pose.at(stroke.part, stroke.points), palette[stroke.colour]
    if stroke.width:
        scale = {"head": pose.shape.head, "nape": pose.shape.neck[2]}.get(stroke.part, 1.0)
        path = _smooth(points, closed=False, steps=4) if len(points) > 2 else points
        brush.line(path, colour, stroke.width * scale * strength)
    else:
        middle = points.mean(axis=0)
        brush.area(_smooth(middle + (points - middle) * (0.5 + 0.5 * strength), closed=True), colour)


@dataclass(frozen=True)
class Bird:
    """One individual ready to be painted: posed, coloured and with its marks."""

    family: Family
    pose: Pose
    palette: Palette
    marks: Mapping[str, float]

    def wear(self, brush: Brush, *parts: str) -> None:
        """Draw the marks that belong to these parts."""
        for name, strength in self.marks.items():
            for stroke in MARKS[name] if strength > 0.05 else ():
                if stroke.part in parts:
                    _paint(stroke, strength, brush, self.pose, self.palette)


def _palette(species: Species, rng: np.random.Generator) -> dict[str, Colour]:
    """The species' colours as one individual wears them, and the mixed tones made of them."""
    mean = np.array([_rgb(code) for code in species.colours.split()], dtype=np.float64)
    worn = mean + rng.normal(0, HUE_SPREAD, mean.shape) + rng.normal(0, LIGHTNESS_SPREAD)
    rows = worn.clip(0, 255).astype(np.uint8)
    colours = {role: _rgb(row.tobytes().hex()) for role, row in zip(ROLES, rows, strict=True)}
    return colours | {
        "shade": _mix(colours["wing"], INK, 0.4),
        "coverts": _mix(colours["wing"], colours["back"], 0.75),
        "rim": _mix(colours["accent"], colours["mark"], 0.6),
        "blush": _mix(colours["under"], colours["mark"], 0.5),
        "stripe": _mix(colours["under"], colours["mark"], 0.7),
    }


def _bird(species: int, rng: np.random.Generator) -> Bird:
    """One bird of the species, in a random pose."""
    family, kind = [(family, member) for family in FAMILIES for member in family.species][species]
    fresh = rng.normal(1, MARK_SPREAD, len(kind.marks)) * kind.marks
    marks = dict(zip(family.marks, fresh.tolist(), strict=True))
    return Bird(family, _pose(_individual(family.shape, rng), rng), _palette(kind, rng), marks)


def _paint_limb(brush: Brush, relief: Brush, bird: Bird, part: str, level: int) -> None:
    """The tail or the folded wing: its outline, the bird's marks and the lines of the feathers."""
    outline, feathers = LIMBS[part]
    edge = bird.pose.at(part, outline)
    edge = _smooth(edge, closed=True) if part == "wing" else edge
    brush.area(edge, bird.palette["wing"])
    relief.area(edge, level)
    for stroke in feathers:
        _paint(stroke, 1.0, brush, bird.pose, bird.palette)
    bird.wear(brush, part)


def _paint_legs(brush: Brush, pose: Pose) -> None:
    """Two thin legs with a joint and three toes each."""
    for hip, foot in pose.legs() if pose.shape.legs else ():
        brush.line(np.array([hip, (hip + foot) / 2 - (0.05, 0), foot]), LEGS, 0.035)
        for toe in (-0.06, 0.06, 0.1):
            brush.line(np.array([foot, foot + np.array([toe, 0.02])]), LEGS, 0.03)


def _paint_bill(brush: Brush, bird: Bird) -> None:
    """A tapering bill whose tip drops, hooks or turns up."""
    length, thickness, drop, bluntness = bird.pose.shape.bill
    skull, t = bird.pose.shape.head, np.linspace(0.0, 1.0, 7)
    ahead, centre = 0.8 + t * (length / skull + 0.2), -0.08 - drop / skull * t**2
    half = thickness / skull / 2 * (1 - t**bluntness) + 0.02
    lower = np.column_stack([ahead, centre - half])[::-1]
    for edge, colour in ((half, bird.palette["bill"]), (-0.1 * half, _mix(bird.palette["bill"], INK, 0.35))):
        outline = np.concatenate([np.column_stack([ahead, centre + edge]), lower])
        brush.area(bird.pose.at("head", outline), colour)


def _paint_body(picture: Image.Image, brush: Brush, relief: Brush, bird: Bird) -> None:
    """Trunk, neck and head: plumage and marks are painted freely and then cut out along the silhouette."""
    pose, palette = bird.pose, bird.palette
    head, skull = pose.frames["head"][:1], pose.shape.head
    reach = pose.radius[:, None] * pose.belly
    cut = Image.new("L", picture.size)
    for target, level in ((brush.on(cut), 255), (relief, 190)):
        target.area(np.concatenate([pose.spine + reach, (pose.spine - reach)[::-1]]), level)
        target.discs(pose.spine, pose.radius, level)
        target.discs(head, skull, level)
    plumage = Image.new("RGB", picture.size, palette["back"])
    feathers = brush.on(plumage)
    for offset, share in ((0.6, 0.5), (0.84, 1.0)):  # the underside, with a soft border
        feathers.discs(pose.spine + offset * reach, pose.radius * 0.82, _mix(palette["back"], palette["under"], share))
    feathers.discs(head, skull * 1.05, palette["back"])
    feathers.discs(pose.at("head", ((0.3, -0.9),)), skull * 0.8, palette["under"])
    bird.wear(feathers, "body", "nape", "head")
    picture.paste(plumage, mask=cut)


def _paint_eyes(brush: Brush, bird: Bird) -> None:
    """One eye with a highlight, or two for a bird that faces us; raptors have a yellow iris."""
    facing = bird.pose.shape.bill[0] == 0.0
    centres = bird.pose.at("head", ((-0.2, 0.1), (0.62, 0.1)) if facing else ((0.36, 0.2),))
    radius = bird.pose.shape.head * (0.24 if facing else 0.2)
    if bird.family.order == "Raptors":
        brush.discs(centres, radius * 1.3, IRIS)
    brush.discs(centres, radius, INK)
    brush.discs(centres + radius * np.array([0.35, -0.35]), radius * 0.36, (250, 250, 250))


def _paint_bird(picture: Image.Image, brush: Brush, bird: Bird) -> Array:
    """Draw the bird from back to front; returns its relief (0 to 1), from which the shading is made."""
    heights = Image.new("L", picture.size)
    relief = brush.on(heights)  # the wing lies over the body and the body over the tail: 255, 190, 120
    _paint_legs(brush, bird.pose)
    _paint_limb(brush, relief, bird, "tail", 120)
    bird.wear(brush, "crown")
    if bird.pose.shape.bill[0]:
        _paint_bill(brush, bird)
    _paint_body(picture, brush, relief, bird)
    _paint_limb(brush, relief, bird, "wing", 255)
    _paint_eyes(brush, bird)
    return np.asarray(heights.reduce(OVERSAMPLING), dtype=np.float64) / 255


def _paint_support(picture: Image.Image, brush: Brush, bird: Bird, rng: np.random.Generator) -> None:
    """A branch right across the picture, or the bird's shadow on the ground."""
    feet = bird.pose.legs()[:, 1]
    if bird.family.place == "branch":
        thickness, x = rng.uniform(0.08, 0.15), np.linspace(-4, 4, 9)
        path = np.column_stack([x, feet[0, 1] + 0.05 + rng.normal(0, 0.08) * x + rng.normal(0, 0.025, 9)])
        tint = _mix(BARK, (160, 150, 140), float(rng.uniform(0, 0.6)))
        brush.line(path, _mix(tint, INK, 0.35), thickness)
        brush.line(path - (0, thickness * 0.22), tint, thickness * 0.5)
    elif bird.family.place == "ground":
        middle = feet.mean(axis=0)
        shadow = middle + np.array([(-0.45, 0.03), (-0.05, 0.0), (0.35, 0.03), (-0.05, 0.06)])
        x, y = (middle * brush.unit + brush.origin).clip(0, picture.width - 1).astype(int).tolist()
        red, green, blue = np.asarray(picture)[y, x].tolist()
        brush.area(_smooth(shadow, closed=True), _mix((red, green, blue), INK, 0.3))


def _frame(pose: Pose, size: int, rng: np.random.Generator) -> tuple[float, Array]:
    """Scale and offset that fit the bird into the picture, with some freedom of both."""
    reach = pose.radius[:, None] * pose.belly
    bill = pose.at("head", ((1.0 + pose.shape.bill[0] / pose.shape.head, 0.0), (-0.3, 1.3)))
    extent = [pose.spine + reach, pose.spine - reach, bill, pose.at("tail", ((1.0, 0.0),))]
    points = np.concatenate([*extent, *([pose.legs()[:, 1]] if pose.shape.legs else ())])
    low, high = points.min(axis=0), points.max(axis=0)
    unit = size * rng.uniform(0.72, 0.92) / max(float((high - low).max()), 1.3)
    return unit, (size - (high - low) * unit) / 2 * (1 + rng.uniform(-0.75, 0.75, 2)) - low * unit


def _paint_details(
    draw: ImageDraw.ImageDraw, size: int, place: str, horizon: float, tints: Sequence[Colour], rng: np.random.Generator
) -> None:
    """Lights between the leaves, or reeds and grasses along the horizon."""
    places = rng.uniform((0, 0, 0.03), (1, horizon, 0.12), (len(tints), 3)) * size
    for (x, y, radius), tint in zip(places, tints, strict=True):
        if place == "branch":
            draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=tint)
        else:
            foot, lean = (horizon + 0.02) * size, rng.normal(0, 0.06) * size
            draw.line((x, foot, x + lean, foot - 2.5 * radius), fill=tint, width=max(1, size // 32))


def _scenery(place: str, size: int, horizon: float, rng: np.random.Generator) -> tuple[Image.Image, Colour]:
    """A soft background and the colour of the details in front of it."""
    sky, far, near, detail = (_rgb(code) for code in rng.choice(SCENES[place]).split())
    stops = (0.0, horizon - 0.04, horizon + 0.04, 1.0)
    colours = np.array([sky, far, near, near]) * ((1,), (1,), (1,), (0.85,))
    ramp = np.column_stack([np.interp(np.linspace(0, 1, size), stops, channel) for channel in colours.T])
    coarse = Image.fromarray(rng.normal(0, 14, (5, 5)).astype(np.float32))
    clouds = np.asarray(coarse.resize((size, size), Image.Resampling.BICUBIC))
    base = ramp[:, None] + clouds[:, :, None] + rng.normal(0, 8, 3)
    image = Image.fromarray(base.clip(0, 255).astype(np.uint8))
    tints = [_mix(far, detail, share) for share in rng.uniform(0.1, 0.6, 7)]
    _paint_details(ImageDraw.Draw(image), size, place, horizon, tints, rng)
    return image.filter(ImageFilter.GaussianBlur(size / 45)), detail


def _reflect(picture: Array, scenery: Array, relief: Array, level: int) -> Array:
    """Hide what is under water and mirror what is above it."""
    out = picture.copy()
    out[level:] = scenery[level:]
    depth = min(len(picture) - level, level)
    mirrored, presence = (values[level - depth : level][::-1] for values in (picture, relief.clip(0, 0.5) * 2))
    fade = 0.45 * presence * np.linspace(1, 0.2, depth)[:, None]
    out[level : level + depth] += (mirrored - out[level : level + depth]) * fade[:, :, None]
    out[level : level + max(1, len(picture) // 64)] *= 1.1  # the bright line where body and water meet
    return out


def _shade(relief: Array, rng: np.random.Generator) -> Array:
    """Factor that lights the bird from above, left or right, from the slopes of its blurred relief."""
    size = len(relief)
    soft = Image.fromarray((relief * 255).astype(np.uint8)).filter(ImageFilter.GaussianBlur(size / 28))
    down, right = np.gradient(np.asarray(soft, dtype=np.float64) * (size / 64 / 255))
    light = _direction(rng.uniform(55, 125))
    slope = -(down * light[1] + right * light[0])
    return np.asarray(1 + np.clip(rng.uniform(1.4, 2.6) * slope, -0.42, 0.3) * (relief > 0))


def _occluder(size: int, rng: np.random.Generator) -> Array:
    """Coverage (0 to 1) of an out-of-focus leaf, reed or twig in front of the scene."""
    cover = Image.new("L", (size, size))
    centre, angle = rng.uniform(0.15, 0.85, 2), rng.uniform(0, 180)
    along, across = _direction(angle) * rng.uniform(0.2, 0.8), _direction(angle + 90) * rng.uniform(0.02, 0.06)
    leaf = centre + np.array([-along, across - along * 0.3, along, -across - along * 0.3])
    ImageDraw.Draw(cover).polygon((_smooth(leaf, closed=True) * size).ravel().tolist(), fill=255)
    return np.asarray(cover.filter(ImageFilter.GaussianBlur(size / 64)), dtype=np.float64)[:, :, None] / 255


def _photograph(scene: Array, rng: np.random.Generator) -> Image.Image:
    """Exposure, white balance, contrast, focus and sensor noise."""
    warmth = rng.normal(0, WARMTH_SPREAD)
    balance = np.array([1 + warmth, 1 + rng.normal(0, 0.015), 1 - warmth])
    exposed = 128 + (scene * balance * rng.uniform(0.78, 1.14) - 128) * rng.uniform(0.8, 1.15)
    image = Image.fromarray(exposed.clip(0, 255).astype(np.uint8))
    image = image.filter(ImageFilter.GaussianBlur(rng.uniform(0, 0.01) * len(scene)))
    grain = rng.standard_normal(scene.shape, dtype=np.float32) * rng.uniform(2, 7)
    return Image.fromarray((np.asarray(image) + grain).clip(0, 255).astype(np.uint8))


def draw_bird(species: int, rng: np.random.Generator, size: int = 64) -> Image.Image:
    """Draw one bird of the species (an index of `SPECIES`); the picture depends only on the state of `rng`."""
    bird, large = _bird(species, rng), size * OVERSAMPLING
    place, pose = bird.family.place, bird.pose
    unit, origin = _frame(pose, large, rng)
    draught = 0.6 * (pose.spine + pose.radius[:, None] * pose.belly)[:, 1].max()
    stands = draught if place == "water" else pose.legs()[0, 1, 1]
    level = int((stands * unit + origin[1]) / OVERSAMPLING)
    horizon = rng.uniform(0.45, 0.75) if place == "branch" else level / size - rng.uniform(0.08, 0.3)
    scenery, detail = _scenery(place, size, min(max(horizon, 0.15), 0.9), rng)
    picture = scenery.resize((large, large), Image.Resampling.BILINEAR)
    brush = Brush(ImageDraw.Draw(picture), unit, origin)
    _paint_support(picture, brush, bird, rng)
    relief = _paint_bird(picture, brush, bird)
    scene = np.asarray(picture.reduce(OVERSAMPLING), dtype=np.float64) * _shade(relief, rng)[:, :, None]
    if place == "water":
        scene = _reflect(scene, np.asarray(scenery, dtype=np.float64), relief, level)
    if rng.random() < OCCLUDED:
        cover = _occluder(size, rng)
        scene = scene * (1 - cover) + np.array(detail) * rng.uniform(0.5, 0.9) * cover
    return _photograph(scene if rng.random() < 0.5 else scene[:, ::-1], rng)


def draw_scenery(place: str, rng: np.random.Generator, size: int = 64) -> Image.Image:
    """Draw a scene without a bird; `place` is a key of SCENES."""
    scenery, _ = _scenery(place, size, rng.uniform(0.3, 0.75), rng)
    return _photograph(np.asarray(scenery, dtype=np.float64), rng)


def _write_species(root: Path, species: int, seed: int, counts: Sequence[int], size: int) -> list[tuple[str, ...]]:
    """Draw and save one species' pictures; returns their rows of the table."""
    folder = Path("images") / re.sub(r"[^a-z0-9]+", "_", SPECIES[species][-1].lower())
    (root / folder).mkdir(parents=True)
    rows: list[tuple[str, ...]] = []
    for number, (split, count) in enumerate(zip(SPLITS, counts, strict=True)):
        for i in range(count):
            picture = draw_bird(species, np.random.default_rng([seed, species, number, i]), size)
            path = folder / f"{split}_{i:03d}.png"
            picture.save(root / path, compress_level=2)  # noise compresses badly: speed matters more
            rows.append((path.as_posix(), *SPECIES[species], split))
    return rows


def demo_table() -> Path:
    """The table of the drawn birds, drawn on first use."""
    return write_demo(cache_dir() / "demo-0")


def write_demo(root: Path, *, seed: int = 0, train: int = 40, test: int = 25, size: int = 64) -> Path:
    """Write `train` and `test` pictures of every species and their table under `root`; returns the table's path.

    An existing table is returned as it is. The folder is filled elsewhere and moved into place when
    complete, so an interrupted run leaves nothing that looks finished.
    """

    def draw(fresh: Path) -> list[tuple[str, ...]]:
        return [row for i in range(len(SPECIES)) for row in _write_species(fresh, i, seed, (train, test), size)]

    return write_drawn(root, "birds.csv", draw)


def write_drawn(root: Path, name: str, draw: Callable[[Path], list[tuple[str, ...]]]) -> Path:
    """Write pictures and their table `name` as `write_demo` does; `draw` saves pictures in a folder and returns their rows."""
    table = root / name
    if table.exists():
        return table
    if root.is_dir():
        if any(root.iterdir()):
            raise DataError(f"{root}: holds files but no {table.name}; pass an empty or a new folder")
        root.rmdir()
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{root.name}-", dir=root.parent) as parent:
        fresh = Path(parent) / "birds"
        rows = draw(fresh)
        (fresh / table.name).write_text(csv_text([("path", *LEVELS, "split"), *rows]), encoding="utf-8")
        try:
            fresh.replace(root)
        except OSError:
            if not table.exists():  # else another process was faster, and its pictures are the same
                raise
    return table
