"""What a server counts, in Prometheus' text format. Each process writes its counts to a file, and any of them adds up all."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

from torchlht.files import write_json

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # bounds of the histogram
HELP = {
    "torchlht_requests_total": ("counter", "Requests to predict, by status."),
    "torchlht_pictures_total": ("counter", "Pictures answered."),
    "torchlht_batches_total": ("counter", "Batches that the network computed."),
    "torchlht_batch_pictures_total": ("counter", "Pictures in these batches."),
    "torchlht_batch_seconds_total": ("counter", "Seconds that they took."),
    "torchlht_request_seconds": ("histogram", "Seconds from a request to its answer."),
    "torchlht_waiting": ("gauge", "Pictures that wait or are worked on."),
    "torchlht_reloads_total": ("counter", "Models read again."),
    "torchlht_reload_failures_total": ("counter", "Models that could not be read again."),
    "torchlht_workers": ("gauge", "Processes that have served."),
}


class Counts:
    """The counts of one process, and of all.

    Args:
        folder: where the processes keep them; nowhere if it is empty.
    """

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder) if folder else None
        self.values: Counter[str] = Counter()
        self.values["torchlht_workers"] = 1

    def add(self, name: str, value: float = 1, **labels: str) -> None:
        """Add to a count."""
        self.values[key(name, labels)] += value  # type: ignore[assignment]

    def set(self, name: str, value: float) -> None:
        """Set a count."""
        self.values[name] = value  # type: ignore[assignment]

    def request(self, status: int, seconds: float) -> None:
        """One more request."""
        self.add("torchlht_requests_total", status=str(status))
        for bound in SECONDS:
            self.add("torchlht_request_seconds_bucket", seconds <= bound, le=f"{bound:g}")
        self.add("torchlht_request_seconds_bucket", le="+Inf")
        self.add("torchlht_request_seconds_sum", seconds)
        self.add("torchlht_request_seconds_count")

    def batch(self, size: int, seconds: float) -> None:
        """One more batch."""
        self.add("torchlht_batches_total")
        self.add("torchlht_batch_pictures_total", size)
        self.add("torchlht_batch_seconds_total", seconds)

    def write(self) -> None:
        """Write the counts of this process where the others find them."""
        if self.folder is not None:
            write_json(self.folder / f"{os.getpid()}.json", dict(self.values), indent=None)

    def total(self) -> Counter[str]:
        """The counts of all processes, also of those that are gone; a gauge of one that is gone counts no more."""
        found = Counter(self.values)
        for file in sorted(self.folder.glob("*.json")) if self.folder else []:
            if file.stem == str(os.getpid()):
                continue
            theirs = Counter(json.loads(file.read_text(encoding="utf-8")))
            if not alive(int(file.stem)):
                theirs["torchlht_waiting"] = 0
            found.update(theirs)
        return found

    def text(self) -> str:
        """All counts in Prometheus' format."""
        lines, total = [], self.total()
        for name, (kind, what) in HELP.items():
            found = sorted(one for one in total if one == name or one.startswith((f"{name}{{", f"{name}_")))
            if kind == "histogram":
                found = [key(f"{name}_bucket", {"le": le}) for le in (*(f"{b:g}" for b in SECONDS), "+Inf")]
                found += [f"{name}_sum", f"{name}_count"]
            lines += [f"# HELP {name} {what}", f"# TYPE {name} {kind}", *(f"{one} {total[one]:g}" for one in found)]
        return "\n".join(lines) + "\n"


def key(name: str, labels: dict[str, str]) -> str:
    """A name with its labels, as Prometheus writes them."""
    inside = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return f"{name}{{{inside}}}" if inside else name


def alive(pid: int) -> bool:
    """Whether a process is running."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
