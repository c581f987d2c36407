"""Methods side by side: `grid` runs them, `tuning` chooses their options, `results` says what differs, `plot` draws it."""

from torchlht.comparison.grid import compare

__all__ = ["compare"]
