"""What methods declare, read from their files without importing them: a wrong name or option is refused without torch.

Names have to be written out: `@register("lht", aliases=[…])`, `variant("lht-paper", LHTHead, …)`.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeGuard

from torchlht.errors import ConfigError, suggestion

HERE = Path(__file__).parent
METHODS = "torchlht.heads.method"


class Declared(NamedTuple):
    """What the files say: the options of every method by its name, and the name that an alias stands for."""

    options: dict[str, tuple[str, ...]]
    aliases: dict[str, str]


@functools.cache
def declared() -> Declared:
    """The methods of `heads/methods`, sorted by name."""
    trees = [ast.parse(file.read_bytes()) for file in (HERE / "method.py", *sorted((HERE / "methods").glob("*.py")))]
    classes = {node.name: node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)}
    common = next(_keywords(node) for node in trees[0].body if isinstance(node, ast.FunctionDef) and node.name == "regularise")
    named = sorted(pair for tree in trees[1:] for pair in _named(tree))
    aliases = {alias: name for tree in trees[1:] for alias, name in _aliases(tree)}
    return Declared({name: _options(of, classes, common) for name, of in named}, aliases)


def _calls(tree: ast.Module) -> Iterator[tuple[ast.Call, str]]:
    """The calls of `register` and `variant`, each with the name of the class that it is about."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from ((call, node.name) for call in node.decorator_list if _calls_for(call, "register"))
        elif isinstance(node, ast.Expr) and _calls_for(node.value, "variant"):
            yield node.value, ast.unparse(node.value.args[1])


def _calls_for(node: ast.expr, function: str) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function


def _named(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for call, of in _calls(tree):
        yield ast.literal_eval(call.args[0]), of


def _aliases(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for call, _ in _calls(tree):
        for keyword in call.keywords:
            if keyword.arg == "aliases":
                yield from ((alias, ast.literal_eval(call.args[0])) for alias in ast.literal_eval(keyword.value))


def _options(name: str, classes: dict[str, ast.ClassDef], common: Sequence[str]) -> tuple[str, ...]:
    """The keywords of the constructor of a class, and those of every method that is trained by steps."""
    line = list(_ancestry(name, classes))
    functions = [node for cls in line for node in classes[cls].body if isinstance(node, ast.FunctionDef)]
    init = next(node for node in functions if node.name == "__init__")
    return (*_keywords(init), *(() if "Estimator" in line else common))


def _ancestry(name: str, classes: dict[str, ast.ClassDef]) -> Iterator[str]:
    """A class and those it inherits from, as far as they are methods."""
    if name in classes:
        yield name
        for base in classes[name].bases:
            yield from _ancestry(ast.unparse(base), classes)


def _keywords(function: ast.FunctionDef) -> tuple[str, ...]:
    return tuple(argument.arg for argument in function.args.kwonlyargs)


# ---- doors ---------------------------------------------------------------------------------------------------------


def check_method(name: str) -> None:
    """Raise ConfigError unless there is such a method."""
    if METHODS in sys.modules:  # then more may be registered than we have files
        from torchlht.heads.method import find_method

        find_method(name)
    elif name not in declared().options and name not in declared().aliases:
        raise unknown_method(name, declared().options, declared().aliases)


def check_option(method: str, name: str) -> None:
    """Raise ConfigError unless a method, which there is, has such an option."""
    if METHODS in sys.modules:
        from torchlht.heads.method import find_option

        find_option(method, name)
    elif name not in options_named(method):
        raise no_option(method, name, options_named(method))


def options_named(method: str) -> tuple[str, ...]:
    """The names of the options of a method of ours; of no method, if there is none of this name."""
    return declared().options.get(declared().aliases.get(method, method), ())


def may_be_option(name: str) -> bool:
    """Whether some method may have an option of this name."""
    return METHODS in sys.modules or any(name in options for options in declared().options.values())


def unknown_method(name: str, known: Iterable[str], aliases: Iterable[str]) -> ConfigError:
    """What to raise when there is no such method."""
    return ConfigError(f"unknown method {name!r}: {suggestion(name, [*known, *aliases])}")


def no_option(method: str, name: str, known: Iterable[str]) -> ConfigError:
    """What to raise when a method has no such option."""
    return ConfigError(f"method {method} has no option {name!r}: {suggestion(name, known)}")
