"""The tree of classes: the tree itself (`tree`), and the rows and files it is read from (`reading`)."""

from torchlht.hierarchy.tree import Hierarchy

__all__ = ["Hierarchy"]
