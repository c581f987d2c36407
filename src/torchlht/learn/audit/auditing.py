"""An audit from start to end: opinions, wrong labels, twins, strangers, the tree; and the tables it writes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from torchlht.console import plural
from torchlht.data.samples import Ints, Samples
from torchlht.files import csv_text, write_json, write_text
from torchlht.learn.audit.believing import DOUBTED, check_enough
from torchlht.learn.audit.discriminant import Opinions, form_opinions
from torchlht.learn.audit.kept import COLUMNS, LABELS, RECORD, TREE, TWINS, KeptAudit, KeptCount, Row, labels_digest
from torchlht.learn.audit.placing import Remark, find_remarks
from torchlht.learn.audit.twins import Twin, find_twins
from torchlht.learn.audit.wrong import Count, Doubts, Floats, Suggestions, count_wrong, find_doubts, suggest

NEAR = 8  # neighbours that are asked
STRANGE = 40  # strangers listed, at most
LOWERED = 0.7  # data with hardly a wrong label still gets a short list


@dataclass(frozen=True, eq=False)
class Audit:
    """What an audit found.

    Attributes:
        samples: the samples, with features of their pictures.
        doubts: what is thought of every label.
        counts: how many labels of each level are wrong, fine first.
        rows: rows of labels.csv, most suspicious first.
        positions: the sample of each row.
        neighbours: (rows, m) the nearest other samples of each row's sample.
        twins: pairs of samples, those that do harm first.
        remarks: about the tree, most suspicious first.
        seconds: how long it took.
    """

    samples: Samples
    doubts: Doubts
    counts: list[Count]
    rows: list[Row]
    positions: Ints
    neighbours: Ints
    twins: list[tuple[Twin, str]]
    remarks: list[Remark]
    seconds: float = 0.0

    def __repr__(self) -> str:
        found = f"{plural(len(self.rows), 'label')} listed, {plural(len(self.twins), 'pair')} of twins"
        return f"Audit({self.samples.name!r}, {found}, {plural(len(self.remarks), 'remark')} on the tree)"


def examine(
    samples: Samples,
    *,
    precision: float = 0.5,
    everything: bool = False,
    seed: int = 0,
    twins: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Audit:
    """Audit samples that have features, and perhaps pictures.

    Args:
        samples: features and labels; every split is judged.
        precision: how many of the labels on the list should be wrong, as a share; it is cut where fewer are to be expected.
        everything: list every known label.
        seed: chooses the parts that are judged by turns.
        twins: whether to look for twins.
        progress: told how many pictures have been compared.
    """
    check_enough(samples)
    found = find_twins(samples, progress) if twins else []
    opinions = form_opinions(samples, seed=seed, together=sorted((twin.first, twin.second) for twin in found))
    doubts = find_doubts(opinions, samples.labels)
    counts = count_wrong(opinions, samples.labels, doubts)
    chosen, levels = _every(doubts) if everything else list_labels(doubts, counts, precision)
    near = nearest(opinions, chosen) if len(chosen) else np.empty((0, 0), dtype=np.int64)
    rows = _rows(samples, doubts, suggest(opinions, samples.labels, doubts, np.unique(chosen)), chosen, levels, near)
    pairs = [(twin, _harm(samples, twin)) for twin in found]
    pairs.sort(key=lambda pair: (_rank(pair[1]), -pair[0].alike, pair[0].first, pair[0].second))
    remarks = find_remarks(opinions, samples) + strangers(opinions, samples)
    return Audit(samples, doubts, counts, rows, chosen, near, pairs, remarks)


# ---- the list of labels ------------------------------------------------------------------------------------------------


def list_labels(doubts: Doubts, counts: Sequence[Count], precision: float) -> tuple[Ints, Ints]:
    """Positions and levels to list, one per sample, as long as enough of them are wrong even if fewer are than estimated."""
    named = doubts.named()
    total, low = sum(count.wrong for count in counts), sum(count.low for count in counts)
    order = np.argsort(-named, kind="stable")
    order = order[named[order] > 0]
    expected = np.cumsum(named[order]) / np.arange(1, len(order) + 1) * cautious(low, total)
    good = np.flatnonzero(expected >= precision)
    order = order[: good[-1] + 1] if len(good) else order[:0]
    return order, doubts.level[order]


def cautious(low: float, total: float) -> float:
    """By how much probabilities are lowered for the list: half way to the lower end of the interval, not below `LOWERED`."""
    return max((1 + low / total) / 2, LOWERED) if total > 0 else 1.0


def _every(doubts: Doubts) -> tuple[Ints, Ints]:
    """Every known label, most suspicious first; at the same probability the finest first."""
    rows, levels = np.nonzero(~np.isnan(doubts.wrong))
    order = np.lexsort((rows, levels, -doubts.wrong[rows, levels]))
    return rows[order], levels[order]


def _rows(samples: Samples, doubts: Doubts, found: Suggestions, chosen: Ints, levels: Ints, near: Ints) -> list[Row]:
    tree, unique = samples.hierarchy, np.unique(chosen)
    at = {int(row): i for i, row in enumerate(unique)}
    rows = []
    for n, (i, k) in enumerate(zip(chosen.tolist(), levels.tolist(), strict=True)):
        level, label = int(found.level[at[i]]), int(found.label[at[i]])
        probability = float(doubts.wrong[i, k])
        said = tree.classes[level][label] if level >= 0 else ""
        reason = _reason(samples, doubts, i, k, level, label, float(found.sure[at[i]]), near[n])
        rows.append(
            Row(samples.keys[i], tree.levels[k], tree.classes[k][samples.labels[i, k]], said,
                tree.levels[level] if level >= 0 else "", round(probability, 4), reason)
        )  # fmt: skip
    return rows


def _reason(samples: Samples, doubts: Doubts, i: int, k: int, level: int, label: int, sure: float, near: Ints) -> str:
    tree, own = samples.hierarchy, samples.labels[i]
    fits = k + 1 < len(tree) and own[k + 1] >= 0 and doubts.wrong[i, k + 1] < DOUBTED
    at, up = tree.real(k + 1, own[k + 1]) if fits else (0, 0)
    above = f"{tree.levels[at]} {tree.classes[at][up]} fits; " if fits else ""
    same = int((samples.labels[near, k] == own[k]).sum())
    known = int((samples.labels[near, k] >= 0).sum())
    told = f"{same} of its {known} nearest have its {tree.levels[k]}" if known else "no neighbour is labelled"
    if level < 0:
        return f"{above}{told}; like no one class"
    for_it = int((samples.labels[near, level] == label).sum())
    return f"{above}{told}; looks like {tree.classes[level][label]} ({100 * sure:.0f} %, {for_it} of the nearest)"


def nearest(opinions: Opinions, rows: Ints, k: int = NEAR) -> Ints:
    """(n, k) the most similar other samples, in the metric of the first judge."""
    unit = F.normalize(torch.linalg.solve_triangular(opinions.judges[0].root, opinions.x.T, upper=False).T, dim=1)
    unique, back = np.unique(rows, return_inverse=True)
    found = np.empty((len(unique), min(k, len(unit) - 1)), dtype=np.int64)
    step = max(2**24 // len(unit), 1)
    for start in range(0, len(unique), step):
        own = torch.from_numpy(unique[start : start + step])
        alike = unit[own] @ unit.T
        alike[torch.arange(len(own)), own] = -2
        found[start : start + step] = alike.topk(found.shape[1], dim=1).indices.numpy()
    return found[back]


# ---- twins and strangers -------------------------------------------------------------------------------------------------

LEAK, DIFFERENT, HARMLESS = "in train and test: a leak", "different labels", "same labels"


def _harm(samples: Samples, twin: Twin) -> str:
    """Why a pair matters."""
    a, b = samples.labels[twin.first], samples.labels[twin.second]
    said = "the same bytes" if twin.exact else "nearly the same"
    parts = []
    if samples.split[twin.first] != samples.split[twin.second]:
        parts.append(f"in {samples.split[twin.first]} and {samples.split[twin.second]}: a leak")
    if ((a != b) & (a >= 0) & (b >= 0)).any():
        parts.append(DIFFERENT)
    return f"{said}; {' and '.join(parts) or HARMLESS}"


def _rank(harm: str) -> int:
    return 0 if DIFFERENT in harm else 1 if "leak" in harm else 2


def strangers(opinions: Opinions, samples: Samples) -> list[Remark]:
    """Samples that are far from every class: perhaps they belong to none."""
    far = np.empty(len(samples))
    judge_of = opinions.fold
    for part, judge in enumerate(opinions.judges):
        rows = np.flatnonzero(judge_of == part)
        for start in range(0, len(rows), 4096):
            here = torch.from_numpy(rows[start : start + 4096])
            z = torch.linalg.solve_triangular(judge.root, opinions.x[here].T, upper=False).T
            far[here.numpy()] = torch.cdist(z, judge.means).amin(dim=1).numpy()
    middle = np.median(far)
    width = 1.4826 * float(np.median(np.abs(far - middle))) or 1.0
    odd = (far - middle) / width
    order = np.argsort(-odd, kind="stable")[:STRANGE]
    return [
        Remark("stranger", "", samples.keys[i], "", "", round(float(odd[i]), 2),
               f"farther from every class than others: {odd[i]:.1f} times the usual spread; perhaps it belongs to none")
        for i in order.tolist() if odd[i] > 5
    ]  # fmt: skip


# ---- files ---------------------------------------------------------------------------------------------------------------


def write_audit(audit: Audit, folder: Path, record: KeptAudit) -> None:
    """Write the tables and audit.json."""
    samples = audit.samples
    write_text(folder / LABELS, csv_text([COLUMNS, *(dataclasses_row(row) for row in audit.rows)]))
    head = ("sample", "twin", "alike", "labels", "twin_labels", "reason")
    pairs = [
        (samples.keys[t.first], samples.keys[t.second], f"{t.alike:.4f}", path_text(samples, t.first),
         path_text(samples, t.second), why)
        for t, why in audit.twins
    ]  # fmt: skip
    write_text(folder / TWINS, csv_text([head, *pairs]))
    columns = ("kind", "level", "class", "now", "suggested", "score", "reason")
    remarks = [(r.kind, r.level, r.label, r.now, r.better, f"{r.score:.3f}", r.reason) for r in audit.remarks]
    write_text(folder / TREE, csv_text([columns, *remarks]))
    write_json(folder / RECORD, {name: getattr(record, name) for name in record.__struct_fields__} | {
        "counts": [{name: getattr(count, name) for name in count.__struct_fields__} for count in record.counts]
    })  # fmt: skip


def dataclasses_row(row: Row) -> tuple[object, ...]:
    """A row of labels.csv in the order of its columns."""
    return tuple(getattr(row, name) for name in COLUMNS)


def path_text(samples: Samples, i: int) -> str:
    """A sample's known labels, coarse → fine."""
    return " › ".join(samples.hierarchy.path_names(samples.labels[i]))


def kept_counts(audit: Audit) -> list[KeptCount]:
    """The counts with level names, coarse → fine."""
    names = audit.samples.hierarchy.levels
    return [
        KeptCount(names[c.level], c.known, round(c.wrong, 1), round(c.low, 1), round(c.high, 1)) for c in audit.counts[::-1]
    ]


def record_of(audit: Audit, original: Samples, data: str, **how: object) -> KeptAudit:
    """audit.json of an audit; `original` are the samples as they were read."""
    made = {"data": data, "content": original.fingerprint(), "labels": labels_digest(original), "samples": len(original)}
    return KeptAudit(**made, counts=kept_counts(audit), seconds=round(audit.seconds, 1), **how)  # type: ignore[arg-type]


def with_features(samples: Samples, features: Floats) -> Samples:
    """Pictures together with what a backbone makes of them."""
    return dataclasses.replace(samples, features=features.astype(np.float32))
