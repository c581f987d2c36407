"""`lht completion`: scripts that complete commands and flags in a shell."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from torchlht.commands.arguments import Argument, words_and_groups
from torchlht.commands.base import COMMANDS, all_commands, command
from torchlht.data.options import Options, Word
from torchlht.heads.declared import declared
from torchlht.learn.following.follow import BOARDS

BASH = """_lht() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" found="" flags=""
    case "${{COMP_WORDS[*]:1:2}}" in
{cases}
    esac
    (( COMP_CWORD == 1 )) && found={first} flags="--help --version"
    (( COMP_CWORD == 2 )) && case "$before" in
{after}
    esac
    [[ $current == -* ]] && found="$flags"
    case "${{COMP_WORDS[*]:1:2}} $before" in
{values}
    esac
    COMPREPLY=($(compgen -W "$found" -- "$current"))
}}
complete -o default -F _lht lht
"""


@dataclass(frozen=True)
class CompletionArgs(Options):
    """Complete commands and flags in a shell."""

    shell: Annotated[Literal["bash", "zsh", "fish"], Word("SHELL")]
    """bash, zsh or fish. Bash and zsh: `eval "$(lht completion bash)"` in the shell's start file; fish:
    `lht completion fish > ~/.config/fish/completions/lht.fish`."""


@command("completion", "before training")
def run_completion(args: CompletionArgs) -> None:
    """Print a script that completes commands and flags in your shell."""
    print({"bash": bash, "zsh": zsh, "fish": fish}[args.shell](flags_of_all()), end="")


def flags_of_all() -> dict[str, list[tuple[str, str]]]:
    """The flags of every command and what they mean; commands of two words first, since one word may begin another."""
    names = sorted(all_commands(), key=lambda name: (-len(name.split()), name))
    return {name: [(flag, one.meaning) for one in options_of(name) for flag in flags_of(one)] for name in names}


def options_of(name: str) -> list[Argument]:
    """The options of a command that are flags."""
    return [one for members in words_and_groups(COMMANDS[name].options)[1].values() for one in members]


def flags_of(one: Argument) -> tuple[str, ...]:
    """The flags of an option: --freeze and --no-freeze."""
    return (one.flags[0], f"--no-{one.flags[0][2:]}") if bool in one.kinds else one.flags[:1]


def values_of(one: Argument) -> tuple[str, ...]:
    """The values that an option may have, if they are few and known: also the names of methods and of boards."""
    methods, boards = tuple(declared().options), tuple(BOARDS)
    return one.choices or {"method": methods, "pattern": methods, "track_to": boards}.get(one.name, ())


def words_after(name: str) -> list[str]:
    """What may follow a command: the second words of others, and the values of its own first word."""
    second = [other.split()[1] for other in sorted(all_commands()) if other.startswith(f"{name} ")]
    first = words_and_groups(COMMANDS[name].options)[0][:1] if name in COMMANDS else []
    return [*second, *(value for one in first for value in values_of(one))]


def bash(flags: dict[str, list[tuple[str, str]]]) -> str:
    """The script for bash. What is neither a command nor a flag nor one of few values is a file."""
    cases = [
        f'        "{name}"*) flags={shlex.quote(" ".join([*(flag for flag, _ in own), "--help"]))} ;;'
        for name, own in flags.items()
    ]
    values = [
        f'        "{name}"*" {one.flags[0]}") found={shlex.quote(" ".join(values_of(one)))} ;;'
        for name in flags
        for one in options_of(name)
        if values_of(one)
    ]
    after = [
        f'        "{word}") found={shlex.quote(" ".join(words_after(word)))} ;;'
        for word in first_words(flags)
        if words_after(word)
    ]
    return BASH.format(
        cases="\n".join(cases),
        values="\n".join(values),
        after="\n".join(after),
        first=shlex.quote(" ".join(first_words(flags))),
    )


def zsh(flags: dict[str, list[tuple[str, str]]]) -> str:
    """The script for zsh, which can read that for bash."""
    loaded = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }"
    return f"{loaded}\nautoload -U +X bashcompinit && bashcompinit\n{bash(flags)}"


def fish(flags: dict[str, list[tuple[str, str]]]) -> str:
    """The script for fish, which also shows what flags mean."""
    first = "__fish_use_subcommand"
    begin = [fish_line(first, "-f", first_words(flags)), fish_line(first, "-l version"), "complete -c lht -l help"]
    return "\n".join([*begin, *fish_lines(flags)]) + "\n"


def fish_lines(flags: dict[str, list[tuple[str, str]]]) -> Iterator[str]:
    """Lines for what follows each command, and for each of its flags."""
    for word in first_words(flags):
        if after := words_after(word):
            seen = f"__fish_seen_subcommand_from {word}; and not __fish_seen_subcommand_from {' '.join(after)}"
            yield fish_line(seen, "" if word in flags and word != "completion" else "-f", after)
    for name in flags:
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in name.split())
        for one in options_of(name):
            takes = "" if bool in one.kinds else "-x" if values_of(one) else "-r"
            for flag in flags_of(one):
                what = f"{takes} -l {flag[2:]} -d {shlex.quote(one.meaning.partition('. ')[0])}".strip()
                yield fish_line(seen, what, values_of(one))


def fish_line(seen: str, what: str, words: Sequence[str] = ()) -> str:
    """What is completed where this was seen."""
    offered = f"-a {shlex.quote(' '.join(words))}" if words else ""
    return " ".join(filter(None, ["complete -c lht -n", shlex.quote(seen), what, offered]))


def first_words(flags: dict[str, list[tuple[str, str]]]) -> list[str]:
    """The first words of all commands."""
    return sorted({name.split()[0] for name in flags})
