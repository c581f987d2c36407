"""`Predictor`: what a trained model and an exported one have in common: pictures or features in, answers in names out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from torchlht.answer.asking import over
from torchlht.answer.calibration import Calibration
from torchlht.answer.named import Named, Wanted, name_all
from torchlht.answer.restriction import Restriction
from torchlht.data.batches import FeatureSet, ImageSet, Preprocess, SampleSet
from torchlht.data.pictures import Picture, Problem
from torchlht.errors import DataError
from torchlht.heads.prediction import Prediction
from torchlht.heads.rules import decide
from torchlht.hierarchy.tree import Hierarchy

Inputs = str | Path | Picture | Image.Image | Tensor | NDArray[Any] | Sequence[str | Path | Picture | Image.Image]


class Predictor(ABC):
    """Turns inputs into a `Prediction`, and that into answers.

    Attributes:
        preprocess: how pictures are prepared; None where the inputs are features.
        calibration: of the probabilities; None where there is none.
        wanted: the threshold that an exported model was given; none otherwise.
    """

    preprocess: Preprocess | None
    calibration: Calibration | None
    wanted: Wanted = Wanted()

    @property
    @abstractmethod
    def hierarchy(self) -> Hierarchy:
        """The tree of classes."""

    @property
    @abstractmethod
    def in_features(self) -> int:
        """How many features a sample has, where the inputs are features."""

    @abstractmethod
    def look(self, x: Tensor) -> Prediction:
        """Uncalibrated probabilities of a prepared batch, without gradients."""

    def predict(
        self,
        inputs: Inputs,
        *,
        top: int = 5,
        rule: str = "own",
        only: Sequence[str] = (),
        exclude: Sequence[str] = (),
        batch_size: int = 64,
        unreadable: list[Problem] | None = None,
    ) -> list[Named]:
        """Named labels with probabilities at every level, calibrated where the model is.

        Args:
            inputs: one picture (path or PIL) or several; or, for a model on features, an (N, d) array.
            top: how many candidates per level.
            rule: how answers are chosen; see `torchlht.heads.rules`.
            only: classes of any level; everything else is impossible.
            exclude: classes of any level that are impossible.
            batch_size: how many samples at a time.
            unreadable: pictures that cannot be read are put here and left out of the answers.

        Raises:
            DataError: for inputs of the wrong kind, or the first picture that cannot be read, where `unreadable` is not given.
        """
        restriction = Restriction.parse(self.hierarchy, only, exclude)
        names, data = self._inputs(inputs, unreadable)
        found: list[Named] = []
        for _, said, at in () if not len(data) else over(None, data, self.look, batch_size=batch_size):
            decided = self.decided(said, rule, restriction)
            found += name_all(
                decided,
                self.hierarchy,
                [names[i] for i in at.flatten().tolist()],
                top,
                rule=rule,
                calibration=self.calibration,
                restricted=restriction is not None,
            )
        return found

    def on(self, device: torch.device) -> Self:
        """The same on a device, where it can be moved."""
        return self

    def decided(self, prediction: Prediction, rule: str = "own", restriction: Restriction | None = None) -> Prediction:
        """A prediction calibrated, then restricted, then decided by a rule."""
        if self.calibration is not None:
            prediction = self.calibration.apply(prediction)
        if restriction is not None:
            prediction = restriction.apply(prediction)
        return decide(prediction, self.hierarchy, rule)

    def _inputs(self, inputs: Any, unreadable: list[Problem] | None) -> tuple[list[str], SampleSet]:
        """What to call each input, and all of them as a set whose labels are their positions."""
        if isinstance(inputs, Tensor | np.ndarray):
            if self.preprocess is not None:
                raise DataError("this model takes pictures: pass paths or PIL images, not an array of features")
            x = torch.as_tensor(inputs, dtype=torch.float32)
            if x.dim() != 2 or x.shape[1] != self.in_features:
                raise DataError(f"features are {tuple(x.shape)}; this model takes (samples, {self.in_features})")
            return [f"row {i}" for i in range(len(x))], FeatureSet(x, torch.arange(len(x)).unsqueeze(1))
        if self.preprocess is None:
            raise DataError("this model takes features: pass an (N, d) array (on the command line, an .npz with 'x')")
        several: list[Any] = [inputs] if isinstance(inputs, str | Path | Picture | Image.Image) else list(inputs)
        names = [f"image {i}" if isinstance(one, Image.Image) else str(one) for i, one in enumerate(several)]
        data = ImageSet(several, torch.arange(len(several)).unsqueeze(1), self.preprocess)
        data.in_memory, data.unreadable = False, unreadable  # each picture is seen once
        return names, data
