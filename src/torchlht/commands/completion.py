"""`lht completion`: scripts that complete commands and flags in a shell."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from torchlht.commands.arguments import Argument, words_and_groups
from torchlht.commands.base import COMMANDS, all_commands, command
from torchlht.data.options import Options, Word

BASH = """_lht() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" found="" flags=""
    case "${{COMP_WORDS[*]:1:2}}" in
{cases}
        *) found={first} ;;
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
    return {name: [(one.flags[0], one.meaning) for one in options_of(name)] for name in names}


def options_of(name: str) -> list[Argument]:
    """The options of a command that are flags."""
    return [one for members in words_and_groups(COMMANDS[name].options)[1].values() for one in members]


def bash(flags: dict[str, list[tuple[str, str]]]) -> str:
    """The script for bash. What is neither a command nor a flag nor one of few values is a file."""
    cases = [f'        "{name}"*) flags={shlex.quote(" ".join(flag for flag, _ in own))} ;;' for name, own in flags.items()]
    values = [
        f'        "{name}"*" {one.flags[0]}") found={shlex.quote(" ".join(one.choices))} ;;'
        for name in flags
        for one in options_of(name)
        if one.choices
    ]
    inner = {word: [name.split()[1] for name in flags if name.startswith(f"{word} ")] for word in first_words(flags)}
    begun = [
        f'        "{word} "*) found={shlex.quote(" ".join(names))} ;;'
        for word, names in inner.items()
        if names and word not in flags
    ]
    return BASH.format(
        cases="\n".join([*cases, *begun]), values="\n".join(values), first=shlex.quote(" ".join(first_words(flags)))
    )


def zsh(flags: dict[str, list[tuple[str, str]]]) -> str:
    """The script for zsh, which can read that for bash."""
    return f"autoload -U +X bashcompinit && bashcompinit\n{bash(flags)}"


def fish(flags: dict[str, list[tuple[str, str]]]) -> str:
    """The script for fish, which also shows what flags mean."""
    return (
        "\n".join(
            ["complete -c lht -n __fish_use_subcommand -f -a " + shlex.quote(" ".join(first_words(flags))), *fish_lines(flags)]
        )
        + "\n"
    )


def fish_lines(flags: dict[str, list[tuple[str, str]]]) -> Iterator[str]:
    """A line for each flag of each command."""
    for name, own in flags.items():
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in name.split())
        for flag, meaning in own:
            yield f"complete -c lht -n {shlex.quote(seen)} -l {flag[2:]} -d {shlex.quote(meaning.partition('. ')[0])}"


def first_words(flags: dict[str, list[tuple[str, str]]]) -> list[str]:
    """The first words of all commands."""
    return sorted({name.split()[0] for name in flags})
