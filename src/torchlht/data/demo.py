"""A drawn demo dataset: birds whose look follows their place in the tree.

The order sets silhouette and posture, the family the finer shape and the kinds of marks, the species the colours and
the strength of each mark.  Pose, light, scenery and individual variation differ in every picture, so that orders are
easy to tell apart, families less so, and sister species are truly confusable.
"""

from __future__ import annotations

import csv
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

Array = NDArray[np.float64]
Colour = tuple[int, int, int]
Palette = Mapping[str, Colour]

LEVELS: tuple[str, ...] = ("order", "family", "species")
SPLITS: tuple[str, ...] = ("train", "test")

OVERSAMPLING = 3  # birds are drawn this much larger and then reduced, which smooths their edges
SHAPE_SPREAD = 0.06  # individual variation of proportions, relative
MARK_SPREAD = 0.18  # individual variation of a mark's strength, relative
LIGHTNESS_SPREAD = 11.0  # individual variation of the whole plumage, in 8-bit steps
HUE_SPREAD = 5.0  # individual variation of each colour channel
WARMTH_SPREAD = 0.04  # variation of the white balance, relative
OCCLUDED = 0.3  # share of the pictures with a leaf or a reed in front


@dataclass(frozen=True)
class Shape:
    """Proportions in units of the trunk's length; angles in degrees above the horizon."""

    posture: float
    depth: float
    neck: tuple[float, float, float]  # length, angle, half width
    head: float  # radius
    bill: tuple[float, float, float, float]  # length (0: seen face on), thickness, drop of the tip, bluntness
    tail: tuple[float, float]  # length, width
    wing: tuple[float, float]  # length, depth
    legs: float


@dataclass(frozen=True)
class Species:
    """Plumage colours (hex, one per role) and the strength, 0 to 1, of each of the family's marks."""

    name: str
    colours: str
    marks: tuple[float, ...]


@dataclass(frozen=True)
class Family:
    """A family: its shape, where it is found (a key of SCENES), the marks it wears (keys of MARKS), its species."""

    order: str
    name: str
    place: str
    marks: tuple[str, ...]
    shape: Shape
    species: tuple[Species, ...]


ROLES = ("back", "under", "wing", "mark", "accent", "bill")
# fmt: off
FAMILIES: tuple[Family, ...] = (
    Family("Songbirds", "Warblers", "branch", ("brow", "streaks", "wingbars"), Shape(
        32, 0.47, (0.22, 48, 0.16), 0.19, (0.17, 0.05, 0.0, 1.5), (0.42, 0.13), (0.72, 0.27), 0.1), (
        Species("Rusty Thicket Warbler", "8f6038 dcc49a 74502f 5a3a22 e6d2a4 4a3c30", (0.7, 0.7, 0.2)),
        Species("Olive Leaf Warbler", "75803f d8d29a 5f6a38 474c2a e8e2b0 54483a", (0.9, 0.0, 0.6)),
        Species("Golden Willow Warbler", "a8923a ead468 7c7238 5c5228 f4e69a 5a4a34", (0.5, 0.0, 0.9)),
        Species("Slate Fern Warbler", "6c7678 ccccb4 586062 3e4448 dfe2d4 3c3c40", (0.8, 0.5, 0.6)),
        Species("Lemon-breasted Warbler", "7c8450 ecdc70 646c48 484c30 f0ecb8 4c4438", (0.6, 0.7, 0.7)))),
    Family("Songbirds", "Finches", "branch", ("cap", "flush", "wingbars"), Shape(
        38, 0.54, (0.19, 55, 0.2), 0.22, (0.17, 0.2, 0.03, 1.2), (0.44, 0.15), (0.72, 0.29), 0.08), (
        Species("Crimson Hedge Finch", "8c5444 d08c78 604440 a83c38 e4c4b0 8c7a68", (0.8, 0.8, 0.5)),
        Species("Amber Pine Finch", "98683c dca868 665038 b4702c ecd4a8 948068", (0.7, 0.7, 0.8)),
        Species("Ashy Stone Finch", "84807a c8bcac 5c5a58 58585c dcd8cc a08c70", (0.8, 0.3, 0.6)),
        Species("Rosy Orchard Finch", "90645a dcaca0 68504c 6c5c64 ecdcd0 847068", (0.7, 0.9, 0.7)))),
    Family("Songbirds", "Tits", "branch", ("peak", "cap", "cheek", "bib"), Shape(
        25, 0.58, (0.17, 50, 0.24), 0.25, (0.1, 0.07, 0.0, 1.5), (0.46, 0.12), (0.66, 0.27), 0.1), (
        Species("Azure Garden Tit", "6c8c98 e0d488 4c7490 3c6890 f0f0ea 34343a", (0.5, 0.7, 0.9, 0.4)),
        Species("Sooty Birch Tit", "84868a d4cabc 60646a 2c2c30 eeece6 2c2c30", (0.6, 0.9, 0.8, 0.8)),
        Species("Saffron Glade Tit", "7e8a54 e6ce60 587078 303438 f2f0e0 30303a", (0.9, 0.9, 0.9, 0.9)),
        Species("Frosted Spruce Tit", "7e8e9c d8d8d2 5a7488 38485c f2f2f0 34383e", (1.0, 0.8, 0.7, 0.6)))),
    Family("Songbirds", "Wagtails", "ground", ("eyestripe", "band", "wingbars"), Shape(
        14, 0.38, (0.2, 45, 0.15), 0.16, (0.16, 0.05, 0.0, 1.5), (0.85, 0.1), (0.72, 0.2), 0.3), (
        Species("Pied Brook Wagtail", "7a7e84 e6e6e4 4c4e54 2a2a2e f2f2f0 2a2a2e", (0.5, 0.9, 0.9)),
        Species("Citrine Meadow Wagtail", "868a58 e8d45c 5c5c48 4c4c3c f0eac4 34342e", (0.8, 0.2, 0.7)),
        Species("Grey Torrent Wagtail", "848c94 e4d878 54585e 3c3e44 eceade 303034", (0.8, 0.5, 0.4)),
        Species("Tawny Ford Wagtail", "98805c e2d2b0 6c5a44 54422e eee6d0 3c3028", (0.7, 0.6, 0.7)))),
    Family("Waterfowl", "Ducks", "water", ("hood", "collar", "mirror"), Shape(
        6, 0.42, (0.3, 62, 0.15), 0.17, (0.22, 0.11, 0.02, 5.0), (0.22, 0.16), (0.72, 0.24), 0.0), (
        Species("Emerald Marsh Duck", "948c80 c4bcb0 84786a 2e6048 f0eee6 c8b048", (1.0, 0.8, 0.5)),
        Species("Chestnut Bay Duck", "8c8884 ccc8c2 746c66 844830 e8e0d4 6c7480", (1.0, 0.3, 0.5)),
        Species("Plum-headed Duck", "908a8c cac4c4 787074 5a4058 ece8ea 8c8478", (1.0, 0.7, 0.7)),
        Species("Dusky Mere Duck", "86765e b8a688 70624e 5a4c3a dccfb0 a48c48", (0.9, 0.2, 0.7)))),
    Family("Waterfowl", "Geese", "water", ("hood", "cheek", "flanks"), Shape(
        8, 0.44, (0.62, 82, 0.12), 0.14, (0.18, 0.13, 0.03, 2.0), (0.24, 0.15), (0.78, 0.26), 0.0), (
        Species("Ashen Tundra Goose", "8a847c bcb4aa 74706a 5e564e dcd6ca d08c58", (0.6, 0.3, 0.6)),
        Species("Barred Fjord Goose", "80807e c4c0b8 686a6c 2e2c2c eeece6 2e2c2c", (1.0, 0.9, 0.9)),
        Species("Snowy Steppe Goose", "c8c6c0 e8e6e2 a8a6a4 9c948a f4f4f2 d4907c", (0.5, 0.5, 0.2)),
        Species("Russet-necked Goose", "84786c c4b8a8 6c6058 884c34 e8dccc 3c3432", (1.0, 0.7, 0.5)))),
    Family("Waterfowl", "Grebes", "water", ("plume", "cap", "fan", "flanks"), Shape(
        4, 0.36, (0.46, 78, 0.09), 0.13, (0.24, 0.06, 0.0, 1.5), (0.08, 0.12), (0.62, 0.18), 0.0), (
        Species("Copper-tufted Grebe", "62544c a4846c 544840 3a3230 c07838 54484c", (0.9, 0.9, 0.9, 0.5)),
        Species("Inkcap Grebe", "5c5a5e b4a89e 4c4a50 242428 a86a48 3c3840", (0.6, 1.0, 0.6, 0.3)),
        Species("Silver-cheeked Grebe", "6e6c6e c4beb6 5a5a5e 44444a d8d4c8 8c7c6c", (0.8, 0.8, 0.9, 0.6)))),
    Family("Shorebirds", "Plovers", "ground", ("mask", "band", "wingbars"), Shape(
        16, 0.46, (0.23, 56, 0.18), 0.19, (0.13, 0.07, 0.01, 2.0), (0.24, 0.14), (0.74, 0.25), 0.4), (
        Species("Ringed Pebble Plover", "948268 eae6de 786a58 302c2c f2f0ea cc8440", (0.9, 0.9, 0.3)),
        Species("Golden Heath Plover", "a48c4c d8c898 806e42 4c3e2c ece0b4 443c34", (0.5, 0.5, 0.6)),
        Species("Rufous Dune Plover", "a07850 e8dcc8 826448 80482c f0e8da 403834", (0.7, 0.9, 0.4)),
        Species("Smoky Flats Plover", "8a8680 deddd8 6e6c6a 4a4848 eeeeea 3a3838", (0.8, 0.6, 0.5)))),
    Family("Shorebirds", "Curlews", "ground", ("brow", "streaks", "flanks"), Shape(
        18, 0.43, (0.36, 62, 0.11), 0.13, (0.62, 0.05, 0.22, 1.5), (0.24, 0.14), (0.76, 0.26), 0.55), (
        Species("Streaked Moor Curlew", "8c7858 d4c4a4 74644c 4a3c2c ece0c4 5c4a40", (0.7, 1.0, 0.6)),
        Species("Cinnamon Tide Curlew", "a4764e dcb48c 84603f 60402a ecd4b4 5c4438", (0.5, 0.6, 0.8)),
        Species("Pale Lagoon Curlew", "a0947e e4dccc 867c6c 605444 f2ece0 6c5a50", (0.9, 0.5, 0.2)))),
    Family("Shorebirds", "Stilts", "ground", ("hood", "collar", "mirror"), Shape(
        12, 0.35, (0.38, 68, 0.1), 0.13, (0.42, 0.04, -0.05, 1.5), (0.2, 0.1), (0.86, 0.2), 0.85), (
        Species("Blackcap Stilt", "4c4a4c eae8e4 343438 2e2c30 f2f0ec 2c2a2e", (0.7, 0.6, 0.3)),
        Species("Rusthead Stilt", "5c5450 e8e0d8 44403e a4683e f0ece4 38343a", (0.8, 0.3, 0.8)),
        Species("Mist-grey Stilt", "74767a e6e6e6 585c62 70747c f0f0f0 3a3a40", (0.6, 0.5, 0.7)))),
    Family("Raptors", "Hawks", "branch", ("brow", "bars", "tailbands"), Shape(
        62, 0.44, (0.2, 78, 0.2), 0.18, (0.12, 0.12, 0.08, 2.5), (0.52, 0.16), (0.8, 0.28), 0.13), (
        Species("Slaty Ridge Hawk", "687078 d0c8be 565e66 54504e dcdcd8 48484c", (0.8, 0.9, 0.7)),
        Species("Ruddy Canyon Hawk", "805a44 d6b494 68483a 8c5034 e4d4bc 504440", (0.4, 0.8, 0.8)),
        Species("Dun Forest Hawk", "86705a d8cab0 6c5a4a 5e4a38 e8dec8 4c4440", (0.7, 0.7, 0.8)),
        Species("Charcoal Gorge Hawk", "545252 b0a8a0 444244 3a3638 ccc8c0 3c3a3c", (0.5, 0.7, 0.5)))),
    Family("Raptors", "Falcons", "branch", ("cap", "moustache", "spots"), Shape(
        56, 0.4, (0.19, 74, 0.19), 0.18, (0.1, 0.11, 0.07, 2.5), (0.4, 0.11), (0.96, 0.24), 0.13), (
        Species("Bluff Falcon", "646e7a dcd2c2 545c68 363a44 e8e4da 4c5058", (0.8, 0.9, 0.6)),
        Species("Brick-backed Falcon", "98603f dec4a0 74483a 60443a ecdcc4 54504e", (0.5, 0.7, 0.9)),
        Species("Sandstone Falcon", "9c8464 e2d4b8 7c6a52 6a543e eee4d0 5c5450", (0.7, 0.6, 0.6)))),
    Family("Raptors", "Owls", "branch", ("ears", "disc", "streaks", "wingbars"), Shape(
        72, 0.54, (0.2, 84, 0.28), 0.27, (0.0, 0.1, 0.1, 1.0), (0.26, 0.15), (0.72, 0.26), 0.1), (
        Species("Hazel Wood Owl", "7c6448 ccb490 68543e 4c3a2a dcc8a4 6c6048", (0.9, 0.8, 0.9, 0.7)),
        Species("Ochre Barn Owl", "b08c58 e8dcc4 98784e 846440 f0e6d4 9c8c70", (0.3, 1.0, 0.4, 0.4)),
        Species("Hoary Peak Owl", "88868a d4d2d0 727276 525056 e2e2e2 58585c", (0.6, 0.9, 0.8, 0.8)))),
)
# Sky, distance, foreground and detail colours of the sceneries of each place.
SCENES: dict[str, tuple[str, ...]] = {
    "branch": ("a9c4b0 86a883 5d7f58 d8e2b0", "c6d8e4 dbe4dc a9bb8c f2f0e0", "d9b98a c99a62 8d6a45 f0d9a0",
               "dfe6ec cfd8e0 b4c0cc ffffff", "55705c 3f5a48 2f4436 8fa878"),
    "ground": ("c9dce6 d9d8c6 b9a583 8f9a66", "b9cfd8 a9bdbf 9a9482 6f7f6a", "d3dfcf b4c48e 8a9c5e d6d08a",
               "e0e4ea d8dde4 eceff2 a9b0ac", "e6d2b8 d0b79a a38c72 78765a"),
    "water": ("c2d6de a4bfca 6f97ab 7f9465", "b8c7a4 93ab86 62806a 9aa45c", "ecd0b4 d4b2a4 8e8ea0 6a6a5c",
              "d6dde2 bcc8d0 93a5b2 8c9488", "9fb4ae 7f9a98 4f6f74 5f7a58"),
}
# fmt: on
INK: Colour = (24, 20, 20)
LEGS: Colour = (116, 92, 70)
BARK: Colour = (98, 80, 64)
IRIS: Colour = (214, 164, 52)

SPECIES: tuple[tuple[str, str, str], ...] = tuple((f.order, f.name, s.name) for f in FAMILIES for s in f.species)


@dataclass(frozen=True)
class Stroke:
    """A line or, with no width, a rounded patch in the frame of one part of the bird (see `Pose.frames`).

    A mark's strength scales the width of its lines and the size of its patches.
    """

    part: str
    colour: str
    points: tuple[tuple[float, float], ...]
    width: float = 0.0


def _circle(part: str, colour: str, x: float, y: float, radius: float) -> Stroke:
    """A round patch."""
    turns = ((0.0, 1.0), (0.7, 0.7), (1.0, 0.0), (0.7, -0.7), (0.0, -1.0), (-0.7, -0.7), (-1.0, 0.0), (-0.7, 0.7))
    return Stroke(part, colour, tuple((x + radius * a, y + radius * b) for a, b in turns))


def _dashes(along: Sequence[float], across: Sequence[float], length: float, width: float) -> tuple[Stroke, ...]:
    """Short dashes along the body, in staggered rows."""
    starts = [(a + 0.05 * (row % 2), b) for row, b in enumerate(across) for a in along]
    return tuple(Stroke("body", "stripe", ((a, b), (a + length, b)), width) for a, b in starts)


def _ribs(colour: str, along: Sequence[float], width: float) -> tuple[Stroke, ...]:
    """Bars across the underside."""
    return tuple(Stroke("body", colour, ((a, 0.1), (a, 0.45), (a, 0.8), (a, 1.1)), width) for a in along)


# fmt: off
MARKS: dict[str, tuple[Stroke, ...]] = {
    "cap": (Stroke("head", "mark", ((1.2, 0.25), (0.7, 1.3), (-0.6, 1.5), (-1.6, 0.6), (-1.3, -0.1), (0, 0.22))),),
    "hood": (Stroke("nape", "mark", ((0.66, 0), (0.74, 0), (0.82, 0), (0.9, 0), (1, 0)), 3.0),
             _circle("head", "mark", 0, 0, 1.3)),
    "cheek": (Stroke("head", "accent", ((0.3, -0.2), (-0.2, 0.15), (-0.8, -0.1), (-0.6, -0.75), (0.0, -0.8))),),
    "bib": (_circle("head", "mark", 0.65, -1.0, 0.72),),
    "brow": (Stroke("head", "accent", ((0.9, 0.3), (0.3, 0.52), (-0.9, 0.4)), 0.32),
             Stroke("head", "mark", ((0.95, 0.05), (-0.9, 0.08)), 0.22)),
    "eyestripe": (Stroke("head", "mark", ((1.0, 0.0), (0.2, 0.12), (-1.1, 0.0)), 0.42),
                  Stroke("head", "accent", ((0.9, 0.36), (0.2, 0.52), (-0.9, 0.38)), 0.24)),
    "mask": (Stroke("head", "mark", ((1.2, 0.4), (0.2, 0.45), (-1.0, 0.1), (-0.7, -0.5), (0.4, -0.5), (1.2, -0.25))),
             _circle("head", "accent", 0.8, 0.66, 0.3)),
    "moustache": (_circle("head", "accent", -0.35, -0.35, 0.55), _circle("head", "accent", 0.75, -0.6, 0.45),
                  Stroke("head", "mark", ((0.42, 0.2), (0.34, -0.25), (0.22, -0.8)), 0.45)),
    "fan": (Stroke("head", "accent", ((0.35, 0.15), (-0.5, 0.4), (-1.2, 0.1), (-0.5, -0.6))),),
    "disc": (_circle("head", "rim", -0.22, 0.0, 0.68), _circle("head", "rim", 0.62, 0.0, 0.68),
             _circle("head", "accent", -0.22, 0.0, 0.55), _circle("head", "accent", 0.62, 0.0, 0.55),
             Stroke("head", "bill", ((0.06, -0.05), (0.34, -0.05), (0.2, -0.5)))),
    "peak": (Stroke("crown", "mark", ((0.7, 0.6), (0.0, 1.25), (-0.95, 1.75), (-0.75, 1.0), (-0.8, 0.3))),),
    "plume": (Stroke("crown", "mark", ((0.6, 0.6), (-0.2, 1.15), (-1.7, 1.35), (-1.1, 0.7), (-0.5, 0.0))),),
    "ears": (Stroke("crown", "back", ((-0.3, 0.7), (-0.75, 1.5), (-0.95, 0.2))),
             Stroke("crown", "back", ((0.4, 0.7), (0.9, 1.45), (0.95, 0.2)))),
    "collar": (Stroke("body", "accent", ((0.84, -1.4), (0.84, 0.0), (0.84, 1.4)), 0.09),),
    "band": (Stroke("body", "mark", ((0.78, -0.4), (0.73, 0.2), (0.69, 0.7), (0.66, 1.1)), 0.12),),
    "flush": (Stroke("body", "blush", ((0.52, 0.9), (0.6, 0.75), (0.7, 0.7), (0.85, 0.7)), 0.26),),
    "streaks": _dashes((0.36, 0.48, 0.6, 0.72), (0.3, 0.52, 0.74, 0.93), 0.06, 0.034),
    "spots": _dashes((0.3, 0.4, 0.5, 0.6, 0.7), (0.3, 0.55, 0.8), 0.03, 0.05),
    "bars": _ribs("stripe", (0.28, 0.35, 0.42, 0.49, 0.56, 0.63, 0.7, 0.77), 0.032),
    "flanks": _ribs("back", (0.22, 0.28, 0.34, 0.4, 0.46, 0.52), 0.034),
    "wingbars": (Stroke("wing", "accent", ((0.3, -0.35), (0.35, 0.1), (0.3, 0.42)), 0.05),
                 Stroke("wing", "accent", ((0.46, -0.35), (0.51, 0.1), (0.46, 0.42)), 0.05)),
    "mirror": (Stroke("wing", "accent", ((0.48, 0.0), (0.74, 0.02), (0.72, 0.28), (0.48, 0.4))),
               Stroke("wing", "mark", ((0.53, 0.06), (0.7, 0.07), (0.68, 0.22), (0.53, 0.3)))),
    "tailbands": tuple(Stroke("tail", "accent", ((x, -0.75), (x, 0.75)), 0.05) for x in (0.5, 0.7, 0.9)),
}
# fmt: on
# Outline, coverts and feather lines of the parts painted under and over the body.
LIMBS: dict[str, tuple[tuple[tuple[float, float], ...], tuple[Stroke, ...]]] = {
    "tail": (
        ((0, -0.8), (0.6, -0.8), (1, -1), (0.95, 0), (1, 1), (0.6, 0.8), (0, 0.8)),
        tuple(Stroke("tail", "shade", ((0.1, y), (0.95, 1.4 * y)), 0.012) for y in (-0.3, 0.3)),
    ),
    "wing": (
        ((-0.02, 0.0), (0.12, -0.42), (0.5, -0.4), (1.0, -0.08), (0.72, 0.3), (0.36, 0.56), (0.06, 0.36)),
        (
            *(Stroke("wing", "shade", ((0.35, 1.3 * y), (0.65, y), (0.92, 0.5 * y)), 0.014) for y in (-0.2, -0.04, 0.12, 0.27)),
            Stroke("wing", "coverts", ((0.0, 0.0), (0.14, -0.36), (0.38, -0.36), (0.46, 0.0), (0.34, 0.42), (0.08, 0.3))),
        ),
    ),
}


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
    """One bird of the species, in a pose of its own."""
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


def write_demo(root: Path, *, seed: int = 0, train: int = 40, test: int = 25, size: int = 64) -> Path:
    """Write `train` and `test` pictures of every species and their table under `root`; returns the table's path.

    A table that is there already is returned as it is.  The folder is filled elsewhere and moved into place when
    complete, so an interrupted run leaves nothing that looks finished.
    """
    table = root / "birds.csv"
    if table.exists():
        return table
    if root.is_dir():
        if any(root.iterdir()):
            raise FileExistsError(f"{root} holds files but no {table.name}: give an empty or a new folder")
        root.rmdir()
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{root.name}-", dir=root.parent) as parent:
        fresh = Path(parent) / "birds"
        rows = [row for i in range(len(SPECIES)) for row in _write_species(fresh, i, seed, (train, test), size)]
        with (fresh / table.name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("path", *LEVELS, "split"), *rows])
        try:
            fresh.replace(root)
        except OSError:
            if not table.exists():  # else another process was faster, and its pictures are as good
                raise
    return table
