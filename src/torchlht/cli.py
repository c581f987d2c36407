"""The command line: finds commands in `torchlht.commands`. Heavy imports wait until the options are checked."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections.abc import Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import torchlht
from torchlht import console
from torchlht.commands.arguments import check_doors, help_text, paragraphs, read_words
from torchlht.commands.base import COMMANDS, Group, all_commands, import_commands
from torchlht.doors import sentence
from torchlht.errors import ConfigError, LHTError, as_flag, suggestion
from torchlht.heads.declared import check_option, may_be_option, options_named
from torchlht.heads.graphs.options import GraphArgs
from torchlht.learn.options import configured, merged, preset

if TYPE_CHECKING:
    from torchlht.heads.method import Option


OF_GRAPHS = {field.name for field in dataclasses.fields(GraphArgs)} - {"method"}


def parse(name: str, arguments: Sequence[str]) -> Any:
    """The options of a command from its arguments; a preset's values are defaults that flags override."""
    import_commands(name.partition(" ")[0])
    command = COMMANDS[name]
    fields = {f.name for f in dataclasses.fields(command.options)}
    words, pairs = method_flags(arguments, fields | {"help"}) if "option" in fields else (list(arguments), [])
    if "--help" in words or "-h" in words:
        print(help_text(name, command.options, command.help))
        if "method" in fields and (method := asked_method(words)):
            print(f"\n{options_help(method)}")
        raise SystemExit(0)
    values = read_words(name, command.options, words, lambda: method_names(arguments) if "option" in fields else ())
    if pairs:
        values["option"] = (*pairs, *values.get("option", ()))
    if config := values.pop("config", None):
        values = merged(configured(config), values)
    return command.options(**{**preset(str(values.get("preset", "default"))), **values})


def check_names(options: Any) -> None:
    """Refuse what options name and is not there, such as a missing file, before anything heavy is imported."""
    check_doors(options)
    if hasattr(options, "method") and Path(options.data).suffix.lower() == ".arff":
        GraphArgs.from_pairs(options.method, options.option)
    elif getattr(options, "hierarchy", None) and hasattr(options, "method") and is_graph(options.hierarchy):
        GraphArgs.from_pairs(options.method, options.option, exclusive=True)
    elif hasattr(options, "method"):
        for name in (pair.partition("=")[0] for pair in options.option):
            if name not in OF_GRAPHS:  # of these, training can tell: it knows whether the data has several labels
                check_option(options.method, name)


def is_graph(hierarchy: Path) -> bool:
    """Whether some classes of a file have several parents."""
    from torchlht.hierarchy.linked import has_several_parents

    return has_several_parents(hierarchy)


def asked_method(words: Sequence[str]) -> str | None:
    """The value of --method, or None."""
    joined = "\n".join(words)
    found = re.search(r"^--method[=\n](\S+)$", joined, re.MULTILINE)
    return found[1] if found else None


def method_flags(arguments: Sequence[str], fields: Set[str]) -> tuple[list[str], list[str]]:
    """Arguments without flags of methods' options, and these as NAME=VALUE: --gamma 1 and --no-bias as gamma=1, bias=false."""
    words, rest, pairs = list(arguments), [], []
    while words:
        word = words.pop(0)
        flag, equals, text = word.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        own = not word.startswith("--") or {name, name.removeprefix("no_")} & fields
        option, negated = (None, False) if own else flagged_option(name, asked_method(arguments) or "lht")
        if option is None:
            rest.append(word)
        elif option.kind == "true|false" and not equals and not (words and words[0].lower() in ("true", "false")):
            pairs.append(f"{option.name}={str(not negated).lower()}")
        elif not equals and not words:
            raise ConfigError(f"{flag} needs a value: {option.kind}")
        else:
            pairs.append(f"{option.name}={text if equals else words.pop(0)}")
    return rest, pairs


def flagged_option(name: str, method: str) -> tuple[Option | None, bool]:
    """The option that a flag names, of this method or else of any other, and whether it starts with no_."""
    if not may_be_option(name) and not may_be_option(name.removeprefix("no_")):
        return None, False
    from torchlht.heads.method import list_methods, options_of

    for one in (method, *list_methods()):
        known = options_of(one)
        if name in known or name.removeprefix("no_") in known:
            return (known[name], False) if name in known else (known[name.removeprefix("no_")], True)
    return None, False


def method_names(arguments: Sequence[str]) -> list[str]:
    """The flags of the options of the method that is asked for."""
    return [as_flag(option) for option in options_named(asked_method(arguments) or "lht")]


def options_help(method: str) -> str:
    """The options of a method as flags, with their types, defaults and meanings."""
    from torchlht.heads.method import options_of

    return "\n".join([f"options of {method}:", *paragraphs(options_of(method).values())])


def usage() -> str:
    """The text of `lht --help`."""
    width = max(map(len, all_commands()))
    lines = ["usage: lht COMMAND …", ""]
    for group in get_args(Group):
        own = [f"  lht {name:<{width}}  {COMMANDS[name].help}" for name in sorted(COMMANDS) if COMMANDS[name].group == group]
        lines += [f"{group}:", *own, ""]
    return "\n".join([*lines, "Each command has its own --help. Try: lht data preview demo; lht train demo"])


def find_command(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """The command's name, of one word or two, and the arguments after it."""
    for file in (arguments[0], ""):  # `lht data pack` is in data.py, most likely; else in any other file
        import_commands(file)
        for words in (2, 1):
            name = " ".join(arguments[:words])
            if name in COMMANDS:
                return name, list(arguments[words:])
    inner = [name for name in COMMANDS if name.startswith(f"{arguments[0]} ")]
    if inner:
        raise LHTError(f"lht {arguments[0]} needs a second word: {', '.join(f'lht {name}' for name in inner)}")
    raise LHTError(f"unknown command {arguments[0]!r}: {suggestion(arguments[0], COMMANDS)}")


def again(arguments: Sequence[str]) -> str:
    """How to go on after an interruption."""
    name, rest = find_command(arguments)
    if name == "train":
        return "; the same command goes on from the last checkpoint"
    if any(field.name == "resume" for field in dataclasses.fields(COMMANDS[name].options)):
        return "; the same command goes on" + ("" if "--resume" in rest else " with --resume")
    return ""


def leave_group() -> None:
    """Leave the other processes of torchrun in good order: an exit with open connections aborts now and then."""
    if "torch.distributed" in sys.modules and "TORCHELASTIC_RUN_ID" in os.environ:
        from torch import distributed

        if distributed.is_available() and distributed.is_initialized():
            distributed.destroy_process_group()


def main(arguments: Sequence[str] | None = None) -> None:
    """`lht`: run a command. A user's mistake gives exit code 2 and one sentence."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return
    if arguments[0] in ("-V", "--version"):
        print(f"torchlht {torchlht.__version__}")
        return
    try:
        name, rest = find_command(arguments)
        options = parse(name, rest)
        check_names(options)
        COMMANDS[name].run(options)
        leave_group()
    except LHTError as error:
        console.notes.print(console.one_line(f"lht: {error.in_flags}"), soft_wrap=True)
        raise SystemExit(2) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader, such as `| head`, has stopped
    except (OSError, MemoryError) as error:
        said = sentence(error) if isinstance(error, OSError) else "there is not enough memory; close other programs"
        console.notes.print(console.one_line(f"lht: {LHTError(said).in_flags}"), soft_wrap=True)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        console.notes.print(f"lht: interrupted{again(arguments)}")
        raise SystemExit(130) from None
