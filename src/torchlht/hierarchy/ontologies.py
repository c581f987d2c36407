"""Classes and their parents in ontology files. A small part of each format is read, and nothing else of it matters.

    .obo                  [Term] with id, alt_id, name, is_a, `relationship: part_of`, is_obsolete
    .ttl .nt              Turtle without blank nodes and lists: skos:broader, skos:narrower, skos:prefLabel
    .rdf .xml             the same in RDF/XML: concepts with rdf:about; broader and narrower with rdf:resource, or nested

Ids name classes in these files. What people call them may differ: see `linked.named`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.parsers import expat

from torchlht.doors import read_text
from torchlht.errors import Fault, HierarchyError

SKOS = "http://www.w3.org/2004/02/skos/core#"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
XML = "http://www.w3.org/XML/1998/namespace"
ONTOLOGY_BYTES = 2**28
"""Largest ontology file."""
PARENTAL = {"is_a", "part_of"}
"""What leads from a class to its parents."""
ENGLISH = {"en": 0, "": 1}  # which of several labels is taken first


class Told(NamedTuple):
    """One thing a file says: a class, by its id, one of its parents ("" for none), and the line."""

    line: int
    id: str
    parent: str


class Ontology(NamedTuple):
    """What a file says: classes and parents, what people call them, which ids the file describes, and former ids."""

    told: list[Told]
    labels: dict[str, str]
    described: set[str]
    former: Sequence[tuple[str, str]] = ()


# ---- OBO -----------------------------------------------------------------------------------------------------------


def read_obo(path: Path) -> Ontology:
    """The terms of an OBO file that are not obsolete."""
    former: list[tuple[str, str]] = []
    found = Ontology([], {}, set(), former)
    for stanza in _stanzas(read_text(path, ONTOLOGY_BYTES)):
        ids = [(line, value) for line, tag, value in stanza if tag == "id"]
        if not ids:
            raise HierarchyError(str(path), [Fault(f"line {stanza[0][0]}", "a [Term] without an id")])
        line, own = ids[0]
        if ("is_obsolete", "true") in [(tag, value) for _, tag, value in stanza]:
            continue
        if own in found.described:
            raise HierarchyError(str(path), [Fault(f"line {line}", f"the id {own!r} appears twice")])
        found.described.add(own)
        found.told.append(Told(line, own, ""))
        found.told.extend(Told(line, own, parent) for line, parent in _obo_parents(stanza))
        found.labels[own] = next((value for _, tag, value in stanza if tag == "name"), "")
        former.extend((value, own) for _, tag, value in stanza if tag == "alt_id")
    return found


def _stanzas(text: str) -> Iterator[list[tuple[int, str, str]]]:
    """The lines of each [Term]: number, tag and value, without comments and modifiers."""
    stanza: list[tuple[int, str, str]] = []
    inside = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("["):
            if stanza:
                yield stanza
            stanza, inside = [], line.strip() == "[Term]"
        elif inside and ":" in line:
            tag, _, value = line.partition(":")
            kept = value if tag == "name" else re.sub(r"\s*\{[^}]*\}\s*$", "", value.split(" ! ")[0])
            stanza.append((number, tag.strip(), re.sub(r"\\(.)", _unescaped, kept.strip())))
    if stanza:
        yield stanza


def _unescaped(found: re.Match[str]) -> str:
    """A character that is written with a backslash; blanks of all kinds are one blank."""
    return " " if found[1] in "ntW" else found[1]


def _obo_parents(stanza: list[tuple[int, str, str]]) -> Iterator[tuple[int, str]]:
    for line, tag, value in stanza:
        words = value.split()
        if tag == "is_a" and words:
            yield line, words[0]
        elif tag == "relationship" and len(words) > 1 and words[0] in PARENTAL:
            yield line, words[1]


# ---- SKOS ----------------------------------------------------------------------------------------------------------


class _Skos:
    """Collects triples of SKOS."""

    def __init__(self) -> None:
        self.found = Ontology([], {}, set())
        self.ranks: dict[str, int] = {}

    def triple(self, line: int, subject: str, predicate: str, value: str, language: str = "") -> None:
        """Take what matters of a triple."""
        told = self.found.told
        if predicate == f"{SKOS}broader":
            told.append(Told(line, subject, value))
        elif predicate == f"{SKOS}narrower":
            told.append(Told(line, value, subject))
        elif predicate == f"{SKOS}prefLabel":
            rank = ENGLISH.get(language.partition("-")[0], 2)
            if rank < self.ranks.get(subject, 3):
                self.found.labels[subject], self.ranks[subject] = value, rank
        elif predicate == f"{RDF}type" and value == f"{SKOS}Concept":
            told.append(Told(line, subject, ""))


TOKEN = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)|(?P<iri><[^<>\s]*>)|(?P<text>\"{3}.*?(?<!\\)\"{3}|'{3}.*?(?<!\\)'{3}|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"""|(?P<mark>[.;,](?=\s|$|\#|["'<])|\^\^|[\[\]()])|(?P<language>@[A-Za-z]+(?:-[A-Za-z0-9]+)*)|(?P<name>[^\s;,<>"'()\[\]@^]+(?<![.])|[^\s;,<>"'()\[\]@^]+)""",
    re.DOTALL,
)


class Token(NamedTuple):
    """A word of Turtle: its kind, its text and its line."""

    kind: str
    text: str
    line: int


def _tokens(text: str, path: Path) -> Iterator[Token]:
    at, line = 0, 1
    while at < len(text):
        found = TOKEN.match(text, at)
        if found is None:
            raise HierarchyError(str(path), [Fault(f"line {line}", f"{text[at : at + 20]!r} is no Turtle")])
        if found.lastgroup != "space":
            yield Token(str(found.lastgroup), found.group(), line)
        line += found.group().count("\n")
        at = found.end()


def read_turtle(path: Path) -> Ontology:
    """The concepts of a Turtle file."""
    found, prefixes = _Skos(), dict[str, str]()
    for statement in _statements(_tokens(read_text(path, ONTOLOGY_BYTES), path)):
        first = statement[0]
        if first.text.lower() in ("@prefix", "@base", "prefix", "base"):
            if len(statement) == 3:
                prefixes[statement[1].text] = statement[2].text[1:-1]
            continue
        try:
            _sentence(statement, prefixes, found)
        except (ValueError, IndexError, KeyError) as error:
            why = str(error).strip("'\"") if isinstance(error, ValueError | KeyError) else "it ends too early"
            raise HierarchyError(str(path), [Fault(f"line {first.line}", f"this statement cannot be read: {why}")]) from None
    return found.found


def _statements(tokens: Iterator[Token]) -> Iterator[list[Token]]:
    """Tokens up to each full stop; PREFIX and BASE of SPARQL end without one."""
    held: list[Token] = []
    for token in tokens:
        if token == (token.kind, ".", token.line) and token.kind == "mark":
            if held:
                yield held
            held = []
            continue
        held.append(token)
        if held[0].text.upper() in ("PREFIX", "BASE") and not held[0].text.startswith("@") and token.kind == "iri":
            yield held
            held = []
    if held:
        yield held


def _sentence(tokens: list[Token], prefixes: dict[str, str], found: _Skos) -> None:
    """One subject with its predicates and objects."""
    if any(token.kind == "mark" and token.text in "[]()" for token in tokens):
        raise ValueError("blank nodes and lists are not read; give every concept a name")
    subject, rest = _full(tokens[0], prefixes), tokens[1:]
    while rest:
        predicate = f"{RDF}type" if rest[0].text == "a" else _full(rest[0], prefixes)
        rest = rest[1:]
        while True:
            value, rest = rest[0], rest[1:]
            language = ""
            if rest and rest[0].kind == "language":
                language, rest = rest[0].text[1:].lower(), rest[1:]
            elif rest and rest[0].text == "^^":
                rest = rest[2:]
            text = _unquoted(value.text) if value.kind == "text" else _full(value, prefixes)
            found.triple(value.line, subject, predicate, text, language)
            if not rest or rest[0].text != ",":
                break
            rest = rest[1:]
        if rest and rest[0].text != ";":
            raise ValueError(f"{rest[0].text!r} where a ; or a full stop is expected")
        while rest and rest[0].text == ";":
            rest = rest[1:]


def _full(token: Token, prefixes: dict[str, str]) -> str:
    """An address in full. Numbers and the like stay as they are."""
    if token.kind == "iri":
        return token.text[1:-1]
    prefix, colon, local = token.text.partition(":")
    if prefix == "_":
        return token.text  # a blank node, by its name in this file
    if colon and f"{prefix}:" not in prefixes:
        raise KeyError(f"the prefix {prefix!r} is not declared")
    return prefixes[f"{prefix}:"] + local if colon else token.text


def _unquoted(text: str) -> str:
    inner = text[3:-3] if text[:3] in ('"""', "'''") else text[1:-1]
    return re.sub(
        r"\\u([0-9A-Fa-f]{4})|\\(.)", lambda m: chr(int(m[1], 16)) if m[1] else {"n": "\n", "t": "\t"}.get(m[2], m[2]), inner
    )


def read_rdf(path: Path) -> Ontology:
    """The concepts of an RDF/XML file."""
    text, found = read_text(path, ONTOLOGY_BYTES), _Skos()
    if "<!ENTITY" in text:
        raise HierarchyError(str(path), [Fault("", "declares entities, which are not read; write addresses in full")])
    parser = expat.ParserCreate(namespace_separator=" ")
    open_: list[tuple[str, str, str]] = []  # element, the id it has or belongs to, its language
    words: list[str] = []

    def start(name: str, attributes: dict[str, str]) -> None:
        name = name.replace(" ", "")
        above = open_[-1] if open_ else ("", "", "")
        about = attributes.get(f"{RDF} about") or ("#" + attributes[f"{RDF} ID"] if f"{RDF} ID" in attributes else "")
        line = parser.CurrentLineNumber
        if about:
            found.triple(line, about, f"{RDF}type", f"{SKOS}Concept" if name == f"{SKOS}Concept" else "")
            if above[0] in (f"{SKOS}broader", f"{SKOS}narrower"):
                found.triple(line, above[1], above[0], about)
        elif resource := attributes.get(f"{RDF} resource"):
            found.triple(line, above[1], name if name != f"{RDF}type" else f"{RDF}type", resource)
        open_.append((name, about or above[1], attributes.get(f"{XML} lang", above[2]).lower()))
        words.clear()

    def end(_: str) -> None:
        name, own, language = open_.pop()
        if name == f"{SKOS}prefLabel":
            found.triple(parser.CurrentLineNumber, own, name, "".join(words).strip(), language)
        words.clear()

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = words.append
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        what = expat.ErrorString(error.code)
        raise HierarchyError(str(path), [Fault(f"line {error.lineno}", f"not well-formed XML ({what})")]) from None
    return found.found
