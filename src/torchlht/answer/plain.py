"""Answers as plain values: the JSON of `lht predict` and of the server, docs/predict.schema.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchlht.answer.named import Candidate, Named, Wanted


def as_dict(named: Named, asked: Wanted) -> dict[str, Any]:
    """One sample in the JSON layout: docs/predict.schema.json."""
    answer = named.answer_at(asked)
    return {
        "file": named.source,
        "answer": {
            "label": answer.label,
            "level": answer.level,
            "probability": answer.probability,
            "path": list(answer.path),
            "path_probabilities": list(answer.path_probabilities),
            "rule": answer.rule,
            "promise": answer.promise,
            "threshold": answer.threshold,
            "undecided": answer.undecided,
            "runners_up": _candidates(answer.runners_up),
            "unlike": answer.unlike,
            "ends": answer.ends,
        },
        "levels": [
            {
                "level": level.level,
                "label": level.label,
                "probability": level.probability,
                "candidates": _candidates(level.candidates),
                "as_far": level.as_far,
                "unlike": level.unlike,
                "ends": level.ends,
            }
            for level in named.levels
        ],
        "consistent": named.consistent,
        "calibrated": named.calibration is not None,
        "restricted": named.restricted,
    }


def _candidates(found: Sequence[Candidate]) -> list[dict[str, Any]]:
    return [{"label": c.label, "probability": c.probability, **({"level": c.level} if c.level else {})} for c in found]
