"""What two spellings of one name have in common."""

from __future__ import annotations

import re
import unicodedata

ACCENTS = re.compile("[\u0300-\u036f]")  # of Latin, Greek and Cyrillic letters; the marks of other scripts are letters


def plain(name: str) -> str:
    """A name without case, accents, blanks and punctuation, unless these part digits: so two spellings of a name are the same.

    >>> plain("Líttle_Gull"), plain("Type 1.1"), plain("カモ") == plain("ガモ")
    ('littlegull', 'type1.1', False)
    """
    bare = unicodedata.normalize("NFC", ACCENTS.sub("", unicodedata.normalize("NFKD", name))).casefold()
    parts = zip(f" {bare}", bare, f"{bare[1:]} ", strict=False)
    kept = (c for left, c, right in parts if unicodedata.category(c)[0] in "LMN" or (left.isdigit() and right.isdigit()))
    return "".join(kept) or name
