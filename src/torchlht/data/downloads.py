"""Pictures that data names by their addresses. torchlht fetches none: they lie beside the data, where wget puts them."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import unquote

from torchlht.data.pictures import is_there

FOLDER: Final = "media"
"""The folder of the pictures, beside the data."""
HOW: Final = f"download it, as wget --force-directories --directory-prefix {FOLDER} does"


def downloaded(home: Path, url: str) -> str:
    """Where the picture at an address lies below a folder: media/HOST/PATH."""
    path = url.partition("://")[2].partition("#")[0]
    places = [f"{FOLDER}/{path}", f"{FOLDER}/{unquote(path)}"]  # wget writes a space for %20
    return next((place for place in places if is_there(home / place)), places[0])
