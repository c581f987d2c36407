"""The birds of the demo, declared: 4 orders, 13 families, 48 species, and the shapes, colours and marks that tell them apart.

The order sets silhouette and posture, the family the finer shape and the kinds of marks, the species the colours and the
strength of each mark. `demo` draws them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Colour = tuple[int, int, int]

LEVELS: tuple[str, ...] = ("order", "family", "species")


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
    """A family: its shape, its scenery (a key of SCENES), its marks (keys of MARKS), its species."""

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
