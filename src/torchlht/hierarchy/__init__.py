"""The tree of classes: what it is (`core`), how it is put together (`build`), and the files it is read from (`read`)."""

from torchlht.hierarchy.core import Hierarchy

__all__ = ["Hierarchy"]
