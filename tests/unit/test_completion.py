"""`lht completion`: what a shell completes."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from torchlht.cli import all_commands, main
from torchlht.commands.completion import flags_of_all


def completed(script: str, line: str) -> list[str]:
    """What bash completes at the end of a line."""
    words = line.split(" ")
    given = f"COMP_WORDS=({' '.join(words[:-1])} '{words[-1]}'); COMP_CWORD={len(words) - 1}"
    ask = f"{given}; _lht; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    told = subprocess.run(["bash", "--norc", "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=True)
    assert not told.stderr
    return told.stdout.split()


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
def test_bash_completes_commands_second_words_and_flags(capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "bash"])
    script = capsys.readouterr().out
    assert completed(script, "lht tr") == ["train"]
    assert completed(script, "lht train birds --epo") == ["--epochs"]
    assert completed(script, "lht hierarchy ch") == ["check"]
    assert "--to" in completed(script, "lht label export birds --t")
    assert "--port" in completed(script, "lht label birds --po")
    assert completed(script, "lht train birds b") == []


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
def test_bash_completes_values_that_are_few_and_leaves_files_to_itself(capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "bash"])
    script = capsys.readouterr().out
    assert completed(script, "lht train birds --semi p") == ["propagate", "posterior"]
    assert completed(script, "lht export runs/birds --to ") == ["onnx", "torch", "web"]
    assert "darwin-core" in completed(script, "lht label export birds --to ")
    assert completed(script, "lht completion b") == []
    assert completed(script, "lht train ") == completed(script, "lht train --out ") == []


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_every_flag_of_every_command_is_in_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", shell])
    script = capsys.readouterr().out
    assert set(flags_of_all()) == set(all_commands())
    for own in flags_of_all().values():
        assert all((f"-l {flag[2:]} " if shell == "fish" else flag) in script for flag, _ in own)
