"""The tree of classes: what it is (`tree`), how it is put together (`rows`), and the files it is read from (`reading`)."""

from torchlht.hierarchy.tree import Hierarchy

__all__ = ["Hierarchy"]
