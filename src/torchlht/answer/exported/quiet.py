"""Exporters talk a great deal, on every channel there is."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout


@contextmanager
def quietly() -> Iterator[None]:
    """A block without prints, warnings and log lines. What is raised in it is raised."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def first_line(error: Exception) -> str:
    """The start of what an exporter has to say, which may go on for pages."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
