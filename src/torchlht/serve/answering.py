"""From the content of picture files to answers in words: what a server does with a batch, in one thread and at one go."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from torchlht.answer.asking import check_numbers
from torchlht.answer.model import Predictor
from torchlht.answer.named import Restriction, Wanted
from torchlht.answer.plain import as_dict
from torchlht.data.pictures import PIXELS, BytesPicture, open_bytes, open_image
from torchlht.data.preparing import Preprocess, decode, looks_at, normalise
from torchlht.errors import DataError
from torchlht.heads.prediction import Prediction

Found = dict[str, Any] | DataError
"""The answer about a picture as in the JSON of `lht predict`; or why the picture cannot be read."""


@dataclass(frozen=True, eq=False)
class Manner:
    """How the pictures of a request are answered."""

    wanted: Wanted
    restriction: Restriction | None = None
    rule: str | None = None
    top: int = 1
    pixels: int = PIXELS

    @property
    def usual(self) -> tuple[object, ...]:
        """Questions for which this is equal are named together."""
        return (self.rule, self.top, id(self.restriction))


@dataclass(frozen=True, eq=False)
class Question:
    """A picture to answer: its name and its file's content."""

    model: Predictor
    name: str
    data: bytes
    manner: Manner


@dataclass(frozen=True, slots=True)
class SentPicture(BytesPicture):
    """A picture of a request, with at most so many pixels."""

    most: int = PIXELS

    def open(self) -> Image.Image:
        """The picture, not decoded yet. Raises DataError when it says that it has more pixels."""
        image = open_bytes(self.data)
        if image.width * image.height > self.most:
            raise DataError(f"{image.width:,} × {image.height:,} pixels are too many; the most that is read is {self.most:,}")
        return image


def prepared(name: str, data: bytes, spec: Preprocess, pixels: int) -> Tensor:
    """The content of a picture file as answers see it: uint8 (3, size, size), or several looks. Raises DataError that says why
    it cannot be read."""
    try:
        return looks_at(decode(open_image(SentPicture(data, name, pixels)), spec), spec).contiguous()
    except DataError as error:
        raise DataError(str(error).removeprefix(f"{name}: ")) from None


def answer(batch: Sequence[Question]) -> list[Found]:
    """The answers to questions for one model, in their order. Raises LHTError when the network cannot be run."""
    model, found = batch[0].model, list[Found | Tensor]()
    assert model.preprocess is not None
    for one in batch:
        try:
            found.append(prepared(one.name, one.data, model.preprocess, one.manner.pixels))
        except DataError as error:
            found.append(error)
    pictures = [one for one in found if isinstance(one, Tensor)]
    if not pictures:
        return [one for one in found if not isinstance(one, Tensor)]
    said = model.look(normalise(torch.stack(pictures), model.preprocess))
    check_numbers(said)
    asked = [one for one, seen in zip(batch, found, strict=True) if isinstance(seen, Tensor)]
    named = iter(named_as_asked(model, said, asked))
    return [next(named) if isinstance(one, Tensor) else one for one in found]


def named_as_asked(model: Predictor, said: Prediction, asked: Sequence[Question]) -> list[Found]:
    """What the network says, in words; neighbours that are asked in the same way are named together."""
    found: list[Found] = []
    for _, group in groupby(asked, key=lambda one: one.manner.usual):
        alike, start = list(group), len(found)
        part, first = part_of(said, start, start + len(alike)), alike[0].manner
        named = model.named(part, [one.name for one in alike], first.top, first.rule, first.restriction)
        found += [as_dict(one, question.manner.wanted) for one, question in zip(named, alike, strict=True)]
    return found


def part_of(said: Prediction, start: int, stop: int) -> Prediction:
    """The prediction for some of the samples."""

    def rows(values: Tensor | None) -> Tensor | None:
        return None if values is None else values[start:stop]

    return dataclasses.replace(
        said,
        log_probs=tuple(log_p[start:stop] for log_p in said.log_probs),
        transitions=(),
        choice=rows(said.choice),
        scores=rows(said.scores),
        distance=rows(said.distance),
    )
