"""`HierarchicalClassifier`: a scikit-learn estimator on features, with labels as people have them.

>>> model = HierarchicalClassifier(val=0.1).fit(X, frame[["order", "family", "species"]])    # blanks are unknown
>>> model.predict(X_new, risk=0.05)                                                          # as deep as it is sure

`docs/sklearn.md` is about its use. It needs the extra `sklearn`.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, Self, TypeVar

import msgspec
import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from torchlht.answer.asking import ask_all, find_device, over
from torchlht.answer.calibration import answer_levels, confidences, fit_calibration, rolled_up
from torchlht.answer.model import History, Model
from torchlht.answer.named import Wanted, wanted
from torchlht.answer.novelty import ALARMS
from torchlht.answer.records import CONFIG, read_config, read_history, read_options
from torchlht.data.batches import FeatureSet
from torchlht.data.columns import Columns, LabelName, as_labels, as_values, labels_in, read_columns, tree_of_columns, two_signs
from torchlht.data.doubts import refuse_placeholders
from torchlht.data.samples import Ints, deepest_known
from torchlht.doors import Threads, fitting
from torchlht.doors import fit as door
from torchlht.errors import ConfigError, DataError, HierarchyError, LHTError, MissingExtraError, RunError
from torchlht.heads.method import Estimator, find_method
from torchlht.heads.prediction import Prediction
from torchlht.hierarchy.branches import branches
from torchlht.hierarchy.tree import Hierarchy
from torchlht.learn.alone import Alone
from torchlht.learn.memory import given_samples, go_over, keep, learn, untrained
from torchlht.learn.options import FitArgs, Recipe, TrainArgs

try:
    from scipy.sparse import issparse
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.exceptions import DataConversionWarning
    from sklearn.utils import _safe_indexing, check_random_state, estimator_html_repr
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.validation import _check_sample_weight, check_consistent_length, check_is_fitted, validate_data
except ImportError:
    raise MissingExtraError("torchlht.HierarchicalClassifier", extra="sklearn") from None

Array = NDArray[Any]
P = ParamSpec("P")
T = TypeVar("T")
OWN = ("method", "semi", "val", "epochs", "batch_size", "lr", "weight_decay")  # parameters that are options of a run


class Kept(msgspec.Struct):
    """What config.yaml of a saved estimator says more than that of a run."""

    labels: list[LabelName] = []
    signs: bool = False
    features: list[str] | None = None


def in_their_words(function: Callable[P, T]) -> Callable[P, T]:
    """Decorator: what is wrong with data or parameters is a ValueError, as scikit-learn's users expect, with our sentence."""

    @functools.wraps(function)
    def call(*values: P.args, **named: P.kwargs) -> T:
        try:
            return function(*values, **named)
        except (ConfigError, DataError, HierarchyError) as error:
            raise ValueError(str(error)) from error

    return call


class HierarchicalClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Learns a tree of classes from features and partly known labels.

        >>> model = HierarchicalClassifier(random_state=0).fit(X, [["Gulls", "Ivory Gull"], ["Gulls", ""], ["Auks", "Puffin"]])
        >>> model.predict(X_new)
        array([['Gulls', 'Ivory Gull']], dtype='<U10')

    Args:
        method: `lht`, `marginal`, …: `lht methods` lists them.
        hierarchy: the tree of classes: a `Hierarchy`, a file of one, or rows of names; by default what the labels imply.
        levels: names of the levels, coarse → fine; by default the columns of a data frame.
        unknown: more names that mean that a label is missing, such as ("?", "sp."). By default a class that is called `unknown`
            or the like is refused; () keeps it.
        semi: how samples without a finest label learn: `none`, `propagate`, `posterior` or `both`.
        val: share of the samples set aside for calibration, which `predict(risk=…)` needs.
        epochs: passes over the samples; by default as `lht train` chooses.
        batch_size: samples per step.
        lr: initial learning rate.
        weight_decay: weight decay.
        input_dropout: share of the features dropped in training.
        quick: train many samples of wide features in a quarter of the time or less: fewer and larger steps, a first layer on
            principal components, and the linear discriminant as a second opinion, which also guesses unknown finest labels
            to learn from. On birds that is better at every level, with all labels and with few species labels.
            False trains as `lht train` does; so do `epochs`, `batch_size`, `lr` or `weight_decay` of your own.
        options: any other option of training or of the method, such as {"gamma": 2.0, "ema": 0.99}.
        random_state: seed of everything random. With the same one, the order of rows does not matter.
        n_jobs: threads to compute with; None leaves them as they are, -1 takes all cores.
        device: where to compute: cpu, cuda, mps, or auto.
        verbose: whether to show progress.

    Attributes:
        classes_: the classes of each level, coarse → fine; one array if there is a single level.
        hierarchy_: the tree.
        levels_: names of the levels, coarse → fine.
        model_: the trained `Model`.
        history_: a row per epoch.
        n_iter_: how many epochs there were.
        n_features_in_: how many features a sample has.
        feature_names_in_: their names, if X was a data frame.
    """

    hierarchy_: Hierarchy
    model_: Model
    history_: History
    classes_: Any
    _made: tuple[TrainArgs, Recipe]
    _state: dict[str, Any] | None

    def __init__(
        self,
        method: str = "lht",
        *,
        hierarchy: Any = None,
        levels: Sequence[str] | str | None = None,
        unknown: Sequence[str] | None = None,
        semi: str = "none",
        val: float = 0.0,
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        input_dropout: float | None = None,
        quick: bool = True,
        options: Mapping[str, Any] | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        device: str = "cpu",
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.hierarchy = hierarchy
        self.levels = levels
        self.unknown = unknown
        self.semi = semi
        self.val = val
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.input_dropout = input_dropout
        self.quick = quick
        self.options = options
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        """It takes sparse features. Labels along a path depend on each other, so it is not `multi_output`."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # ---- learning --------------------------------------------------------------------------------------------------

    @in_their_words
    def fit(self, X: ArrayLike, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from features and labels.

        Args:
            X: (n, d) features, dense or sparse.
            y: a row of names coarse → fine for each sample, as lists, an array or a data frame; "", None, nan and -1 mean
                unknown. With `hierarchy`, or for a single level, one name for each sample is enough.
            sample_weight: (n,) how much each sample counts. Whole numbers are numbers of copies; others are scaled to a mean
                of 1.
        """
        args = self._args()
        x = self._features(X, reset=True)
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        check_consistent_length(X, y)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, X, dtype=np.float64)
        if weights is not None and (weights == 0).any() and (weights > 0).any():
            there = np.flatnonzero(weights)  # a sample of weight 0 tells nothing about the tree, either
            x, y, weights = x[there], _safe_indexing(y, there), weights[there]
        self._signs = self.hierarchy is None and two_signs(y)
        columns = self._columns(y, len(x))
        tree = self._given_tree() or tree_of_columns(columns, self._level_names())
        _refuse_one_class(tree)
        given = given_samples(x, labels_in(tree, columns), tree, weights)
        del x  # it may be large, and `given` has a copy
        if self.unknown is None:
            refuse_placeholders(given.samples)
        with self._computing(args.seed):
            self.model_, self.history_, recipe = learn(args, given, self._machine(), quick=self.quick)
        self._be_fitted(args, recipe, [column.dtype for column in columns.columns])
        return self

    def _be_fitted(self, args: TrainArgs, recipe: Recipe, dtypes: Sequence[np.dtype[Any]]) -> None:
        """Set what belongs to a new model, once that and its history are there; labels are of these dtypes, coarse → fine."""
        tree = self.hierarchy_ = self.model_.hierarchy
        self.n_iter_, self._made, self._state, self._calls = len(self.history_), (args, recipe), None, 0
        kinds = dtypes if len(dtypes) == len(tree) else [*dtypes, np.dtype(str)][:1] * len(tree)
        names = ([tree.text(k, i) for i in range(tree.sizes[k])] for k in tree.top_down)
        levels = [as_values(*both) for both in zip(names, kinds, strict=True)]
        self._dtypes = [values.dtype if values.dtype.kind == "U" else kind for values, kind in zip(levels, kinds, strict=True)]
        self.classes_ = levels if len(levels) > 1 else levels[0]

    def _takes_steps(self) -> bool:
        """Whether its method is trained by steps."""
        return not issubclass(find_method(self.method).cls, Estimator)

    @available_if(_takes_steps)  # type: ignore[untyped-decorator]
    @in_their_words
    def partial_fit(self, X: ArrayLike, y: Any, classes: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Take steps over these samples alone, at a constant learning rate.

        Args:
            X: (n, d) features.
            y: their labels, as in `fit`.
            classes: at the first call all classes there will be: rows of names coarse → fine, or the names of a single level.
                Not needed with `hierarchy`, or after `fit`.
            sample_weight: (n,) how much each sample counts, as in `fit`.
        """
        args, first = self._args(), not hasattr(self, "model_")
        x = self._features(X, reset=first)
        check_consistent_length(X, y)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, X, dtype=np.float64)
        if first:
            self._begin(args, x.shape[1], classes)
        made, recipe = self._made
        given = given_samples(x, self._labels(y, len(x)), self.hierarchy_, weights)
        seed = np.random.SeedSequence([made.seed, self._calls]).generate_state(1)[0].item()
        with self._computing(seed):
            once = dataclasses.replace(recipe, seed=seed)
            loss, self._state = go_over(self.model_, once, given, self._machine(), self._state)
        self.model_.calibration = self.model_.novelty = None  # they were about the model as it was
        self.history_ = [*self.history_, {"epoch": float(len(self.history_) + 1), "loss": loss}]
        self.n_iter_, self._calls = len(self.history_), self._calls + 1
        return self

    def _begin(self, args: TrainArgs, width: int, classes: Any) -> None:
        """An untrained model of all classes there will be."""
        tree, columns, self._signs = self._given_tree(), None, False
        if classes is not None:
            self._signs = tree is None and two_signs(classes)
            columns = read_columns(classes, self._unknown_names(), signs=self._signs, where="classes")
            tree = tree or tree_of_columns(columns, self._level_names())
        if tree is None:
            raise ConfigError("classes must be passed on the first call to partial_fit, unless there is a `hierarchy`")
        _refuse_one_class(tree)
        with self._computing(args.seed):
            self.model_, self.history_ = untrained(args, width, tree), []
        dtypes = [] if columns is None else [column.dtype for column in columns.columns]
        self._be_fitted(args, args.recipe(features=True, samples=1), dtypes)

    @in_their_words
    def calibrate(self, X: ArrayLike, y: Any) -> Self:
        """Fit the probabilities, and what `predict(risk=…)` promises, to labelled samples that it was not trained on."""
        check_is_fitted(self, "model_")
        x = self._features(X)
        labels = self._labels(y, len(x))
        with self._computing():
            seen = ask_all(self.model_, FeatureSet(torch.from_numpy(x), torch.from_numpy(labels)))
            self.model_.calibration = fit_calibration(*seen, self.hierarchy_, source="labelled samples")
        return self

    # ---- answering -------------------------------------------------------------------------------------------------

    @in_their_words
    def predict(
        self, X: ArrayLike, *, confidence: float | None = None, risk: float | None = None, strict: bool = False
    ) -> Array:
        """(n, K) names along a path of the tree, coarse → fine; (n,) if there is a single level.

        What a branch does not have, and what is not sure enough, is blank: "", or -1 or nan where labels are numbers. Without
        a threshold it is always the former; with one, `model_.predict(X)[i].answer(confidence=…).ends` tells.

        Args:
            X: (n, d) features.
            confidence: go only as deep as the probability reaches this.
            risk: go only so deep that at most this share of answers is wrong; see `calibrate`.
            strict: for `risk`, count calibration answers that no label can check as wrong.
        """
        asked = self._wanted(confidence, risk, strict)
        return self._named(np.concatenate([self._answered(*seen, asked) for seen in self._seen(X)]))

    @in_their_words
    def predict_proba(self, X: ArrayLike) -> Any:
        """A list of (n, classes) probabilities, coarse → fine, in the order of `classes_`; one array for a single level."""
        levels = [np.exp(log_p) for log_p in self._log_probs(X)]
        return levels if len(levels) > 1 else levels[0]

    @in_their_words
    def predict_log_proba(self, X: ArrayLike) -> Any:
        """Logarithms of `predict_proba`."""
        levels = self._log_probs(X)
        return levels if len(levels) > 1 else levels[0]

    def proba_frame(self, X: Any) -> Any:
        """`predict_proba` as a pandas data frame: columns are (level, class), rows are named as in X."""
        try:
            import pandas as pd
        except ImportError:
            raise LHTError("proba_frame() needs pandas: pip install pandas; predict_proba() gives the same as arrays") from None
        found = self.predict_proba(X)
        levels = found if isinstance(found, list) else [found]
        columns = [(level, name) for level, names in zip(self.levels_, self._each_level(), strict=True) for name in names]
        named = pd.MultiIndex.from_tuples(columns, names=["level", "class"])
        return pd.DataFrame(np.concatenate(levels, axis=1), index=getattr(X, "index", None), columns=named)

    @in_their_words
    def score(self, X: ArrayLike, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """The share of samples whose finest known label is answered right; samples without any label do not count.

        Args:
            X: (n, d) features.
            y: their labels, as in `fit`; a name that the tree does not have is refused.
            sample_weight: (n,) how much each sample counts.
        """
        right, known = self._right(X, y)
        finest = deepest_known(np.where(known, 0, -1))
        some = np.flatnonzero(finest < right.shape[1])
        if not len(some):
            raise DataError("y: no sample has a label to check the answers with")
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, X, dtype=np.float64)[some]
        return float(np.average(right[some, finest[some]], weights=weights))

    @in_their_words
    def scores(self, X: ArrayLike, y: Any) -> dict[str, float]:
        """The accuracy at each level, coarse → fine, over the samples whose label there is known; nan without any."""
        right, known = self._right(X, y)
        of = {name: len(self.levels_) - 1 - i for i, name in enumerate(self.levels_)}
        return {name: float(right[known[:, k], k].mean()) if known[:, k].any() else float("nan") for name, k in of.items()}

    def _right(self, X: ArrayLike, y: Any) -> tuple[Array, Array]:
        """(n, K) which answers are right, and which labels are known, fine first."""
        check_is_fitted(self, "model_")
        check_consistent_length(X, y)
        labels = self._labels(y, None)
        chosen = np.concatenate([self._answered(*seen, Wanted()) for seen in self._seen(X)])
        return chosen == labels, labels >= 0

    @property
    def levels_(self) -> list[str]:
        """Names of the levels, coarse → fine."""
        return [self.hierarchy_.levels[k] for k in self.hierarchy_.top_down]

    def _seen(self, X: ArrayLike) -> Iterator[tuple[Prediction, Tensor | None]]:
        """Predictions as the model makes them, batch by batch, and how far from known samples each is, if that was learned."""
        check_is_fitted(self, "model_")
        x, model = self._features(X), self.model_
        with self._computing():
            for _, said, _ in over(None, torch.from_numpy(x), model.look):
                far = None if model.novelty is None or said.distance is None else model.novelty.as_far(said)
                yield said, far

    def _log_probs(self, X: ArrayLike) -> list[Array]:
        """Log-probabilities of each level, coarse → fine, calibrated if the model is."""
        seen = [said for said, _ in self._seen(X)]
        said = [one if self.model_.calibration is None else self.model_.calibration.apply(one) for one in seen]
        return [torch.cat([one.log_probs[k] for one in said]).cpu().numpy() for k in self.hierarchy_.top_down]

    def _wanted(self, confidence: float | None, risk: float | None, strict: bool) -> Wanted:
        """The threshold that answers must reach."""
        check_is_fitted(self, "model_")
        confidence, risk = fitting("confidence", confidence, float | None), fitting("risk", risk, float | None)
        if risk is not None and self.model_.calibration is None:
            raise ConfigError("`risk` needs calibration: pass `val=0.1`, or call calibrate with samples it was not trained on")
        return wanted(confidence, risk, self.model_.rule, self.model_.calibration, strict=strict)

    def _answered(self, said: Prediction, far: Tensor | None, asked: Wanted) -> Ints:
        """(B, K) classes, fine first, -1 where it is not sure enough."""
        decided = self.model_.decided(said)
        chosen = decided.chosen()
        if asked.promise:
            sure = confidences(decided)
            sure = sure if far is None else sure.masked_fill(far.to(sure.device) < ALARMS, -1.0)
            chosen = rolled_up(chosen, answer_levels(sure, asked.threshold), self.hierarchy_)
        found: Ints = chosen.cpu().numpy()
        return found

    # ---- names -----------------------------------------------------------------------------------------------------

    def _each_level(self) -> list[Array]:
        """The classes of each level, coarse → fine."""
        return self.classes_ if isinstance(self.classes_, list) else [self.classes_]

    def _named(self, chosen: Ints) -> Array:
        """Classes (n, K), fine first, as labels coarse → fine; blank where there is none."""
        tree = self.hierarchy_
        columns = [
            as_labels(tree, k, chosen[:, k], values, kind)
            for k, values, kind in zip(tree.top_down, self._each_level(), self._dtypes, strict=True)
        ]
        if len(columns) == 1:
            return columns[0]
        mixed = len({column.dtype.kind for column in columns}) > 1
        return np.stack([column.astype(object) if mixed else column for column in columns], axis=1)

    # ---- what is given ---------------------------------------------------------------------------------------------

    def _args(self) -> TrainArgs:
        """The parameters as options of a run. Raises ConfigError with the sentence of the command line."""
        given = dict(fitting("options", self.options or {}, dict))
        of_training = {f.name for f in dataclasses.fields(FitArgs)}
        own = {name: given.pop(name) for name in list(given) if name in of_training}
        if self.input_dropout is not None:
            given["input_dropout"] = self.input_dropout
        own = {name: getattr(self, name) for name in OWN} | own
        levels = self._level_names()
        return TrainArgs(
            **own,
            option=given,  # type: ignore[arg-type]  # a mapping becomes pairs
            levels=",".join(levels) if levels else None,
            unknown=None if self.unknown is None else ",".join(self._unknown_names()),
            seed=self._seed(),
            accelerator=str(self.device),
            test_share=0.0,
            test=False,
            track=False,
            quiet=not self.verbose,
        )

    def _seed(self) -> int:
        """An int is the seed itself; anything else draws one."""
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31))

    def _level_names(self) -> list[str] | None:
        """`levels` as a list."""
        if self.levels is None:
            return None
        return _listed("levels", self.levels)

    def _unknown_names(self) -> list[str]:
        """`unknown` as a list."""
        return [] if self.unknown is None else _listed("unknown", self.unknown)

    def _given_tree(self) -> Hierarchy | None:
        """`hierarchy` as a tree."""
        given, levels = self.hierarchy, self._level_names()
        if given is None or isinstance(given, Hierarchy):
            return given
        if isinstance(given, str | Path):
            return Hierarchy.read(given, levels)
        return tree_of_columns(read_columns(given, where="hierarchy"), levels)

    def _features(self, X: Any, *, reset: bool = False) -> NDArray[np.float32]:
        """X as a dense array that torch can use. Raises ValueError, in scikit-learn's words, if it does not fit."""
        x = validate_data(self, X, reset=reset, accept_sparse="csr", dtype=np.float32, order="C")
        dense: NDArray[np.float32] = x.toarray() if issparse(x) else x
        return dense if dense.flags.writeable else dense.copy()

    def _columns(self, y: Any, count: int) -> Columns:
        """Labels by name."""
        if isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] == 1:
            words = "A column-vector y was passed when a 1d array was expected; it is taken for one name per sample."
            warnings.warn(words, DataConversionWarning, stacklevel=4)
            y = y[:, 0]
        columns = read_columns(y, self._unknown_names(), signs=self._signs)
        if len(columns) != count:
            raise DataError(f"y has {len(columns)} rows, but X has {count}")
        return columns

    def _labels(self, y: Any, count: int | None) -> Ints:
        """(n, K) classes of the fitted tree."""
        return labels_in(self.hierarchy_, self._columns(y, len(y) if count is None else count))

    def _machine(self) -> Alone:
        return Alone(find_device(self.device))

    @contextmanager
    def _computing(self, seed: int | None = None) -> Iterator[None]:
        """Context: `n_jobs` threads and, with a seed, random numbers of its own; nothing outside changes."""
        threads, before = fitting("n_jobs", self.n_jobs, Threads | None), torch.get_num_threads()
        device = find_device(self.device)
        try:
            if threads:
                torch.set_num_threads(threads if threads > 0 else max((os.cpu_count() or 1) + 1 + threads, 1))
            with torch.random.fork_rng([device] if device.type == "cuda" else [], enabled=seed is not None):
                if seed is not None:
                    torch.manual_seed(seed)
                yield
        finally:
            if threads:
                torch.set_num_threads(before)

    # ---- keeping ---------------------------------------------------------------------------------------------------

    @in_their_words
    def save(self, path: str | Path, X: ArrayLike | None = None, y: Any = None) -> Path:
        """Write a run directory that the command line and `load` read; returns its path.

        Args:
            path: the directory.
            X: features of test samples to keep with it, so that `lht evaluate` and `lht report` have some. Those it was trained
                on are not kept.
            y: their labels.

        Raises:
            RunError: when the directory is in use.
        """
        check_is_fitted(self, "model_")
        names = getattr(self, "feature_names_in_", None)
        labels: list[Any] = [kind.name if kind.kind in "iufb" else "str" for kind in self._dtypes]
        kept = Kept(labels, self._signs, None if names is None else [str(name) for name in names])
        x = None if X is None else self._features(X)
        test = None if x is None else (x, self._labels(y, len(x)))
        return keep(Path(path), self.model_, *self._made, self.history_, test, {"estimator": msgspec.to_builtins(kept)})

    @classmethod
    def load(cls, run: str | Path) -> Self:
        """A fitted estimator from what `save` or `lht train` has written, if the model takes features.

        Raises:
            RunError: when there is no such run, or it takes pictures.
        """
        model, folder = Model.from_pretrained(run), Path(run)
        if model.preprocess is not None:
            raise RunError(f"{run}: takes pictures; an estimator takes features: use torchlht.load({str(run)!r})")
        args = read_options(folder, TrainArgs)
        kept = door(read_config(folder).get("estimator") or {}, Kept, str(folder / CONFIG), RunError)
        plain = {f.name: f.default for f in dataclasses.fields(FitArgs) if f.name not in OWN}
        changed = {name: getattr(args, name) for name, default in plain.items() if getattr(args, name) != default}
        found = cls(
            **{name: getattr(args, name) for name in OWN},
            hierarchy=model.hierarchy,
            unknown=None if args.unknown is None else args.unknown_names(),
            options={**model.options, **changed},
            random_state=args.seed,
        )
        found.model_, found.history_, found._signs = model, read_history(folder), kept.signs
        found.n_features_in_ = model.in_features
        if kept.features:
            found.feature_names_in_ = np.array(kept.features, dtype=object)
        found._be_fitted(args, args.recipe(features=True, samples=1), [np.dtype(name) for name in kept.labels])
        return found

    # ---- notebooks -------------------------------------------------------------------------------------------------

    def _repr_html_inner(self) -> str:
        """scikit-learn's picture of the estimator, with the tree below it."""
        picture: str = estimator_html_repr(self)
        return picture + branches(self.hierarchy_) if hasattr(self, "hierarchy_") else picture

    def _repr_mimebundle_(self, **how: Any) -> dict[str, str]:
        """What notebooks ask for."""
        bundle: dict[str, str] = super()._repr_mimebundle_(**how)
        return bundle | {"text/html": self._repr_html_inner()} if "text/html" in bundle else bundle


# ---- in place of hiclass -------------------------------------------------------------------------------------------

THEIRS = (
    "local_classifier", "binary_policy", "edge_list", "replace_classifiers", "classifier_abbreviation", "calibration_method",
    "return_all_probabilities", "probability_combiner", "tmp_dir",
)  # fmt: skip


def LocalClassifierPerNode(local_classifier: Any = None, **given: Any) -> HierarchicalClassifier:
    """A `HierarchicalClassifier` from a call of hiclass, so that a script runs with another import.

    One network learns all nodes, so what hiclass says about a classifier per node is not used, and a warning names it.
    """
    given = {"local_classifier": local_classifier, **given}
    unused = [name for name in THEIRS if given.pop(name, None) is not None]
    if unused:
        warnings.warn(f"{', '.join(unused)}: not used, as one network learns all nodes; `method` chooses it", stacklevel=2)
    return HierarchicalClassifier(**given)


LocalClassifierPerParentNode = LocalClassifierPerLevel = LocalClassifierPerNode


# ---- small parts ---------------------------------------------------------------------------------------------------


def _listed(name: str, value: Any) -> list[str]:
    """Names in a list, or in one text with commas between them as on the command line."""
    given = value.split(",") if isinstance(value, str) else list(value) if isinstance(value, Iterable) else value
    return [one.strip() for one in fitting(name, given, list[str])]


def _refuse_one_class(tree: Hierarchy) -> None:
    if tree.sizes[0] < 2:
        raise DataError(f"y: only one class, {tree.text(0, 0)!r}; a classifier needs at least two")
