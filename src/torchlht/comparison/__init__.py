"""Methods side by side: `grid` runs them, `tuning` chooses options, `results` tables them, `verdict` says what differs."""

from torchlht.comparison.grid import compare

__all__ = ["compare"]
