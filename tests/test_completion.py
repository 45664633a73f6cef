"""Shell completion: valid scripts that complete commands, options, names, choices and paths."""

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from commands import FailingCommand, printed
from td7.algorithms import ALGORITHMS
from td7.cli import completion
from td7.cli.completion import KINDS, PATHS, SHELLS, _words
from td7.cli.main import whole_parser
from td7.datasets.record import KINDS as RECORDED_KINDS
from td7.options import ALGORITHM_NAMES


@pytest.fixture
def script(working_folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The script for bash, in a folder with the folder `runs` and the file `data.hdf5`."""
    (working_folder / "runs").mkdir()
    (working_folder / "data.hdf5").touch()
    file = working_folder / "td7.bash"
    file.write_text(printed(capsys, "completion", "bash"))
    return file


COMPLETED = {
    "td7 tr": "train",
    "td7 train s": "sac",
    "td7 train sac --sn": "--snapshot-every",
    "td7 train --device c": "cpu cuda",
    "td7 train --engine ": "auto eager compiled graph",
    "td7 train --env Hop": "Hopper-v4 Hopper-v5",
    "td7 train --set batch_size=8 td": "td7 td3 td3+ofe td3+bc",
    "td7 train --dataset d": "data.hdf5",
    "td7 train --out ": "runs",
    "td7 resume r": "runs",
    "td7 study o": "online offline",
    "td7 study online --backend r": "ray",
    "td7 list st": "studies",
    "td7 list studies ab": "ablation-main ablation",
    "td7 dataset f": "fetch",
    "td7 dataset fetch hopper-m": "hopper-medium-v2 hopper-medium-replay-v2 "
    "hopper-medium-expert-v2",
    "td7 dataset record --kind e": "expert",
    "td7 export runs --format o": "onnx",
    "td7 completion ": "bash zsh tcsh",
}


def test_bash_completes(script: Path) -> None:
    """As when Tab is pressed, all words in one process."""
    lines = [
        "set -e",
        f"source {script}",
        'complete() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shtab_td7; }',
    ]
    for words in COMPLETED:
        given = shlex.join(words.split(" "))
        lines += [f"complete {given}", 'echo "${COMPREPLY[*]}"']
    ended = subprocess.run(
        ["bash", "--norc"], input="\n".join(lines), capture_output=True, text=True, check=False
    )
    assert (ended.stderr, ended.returncode) == ("", 0)
    assert dict(zip(COMPLETED, ended.stdout.splitlines(), strict=True)) == COMPLETED


def test_scripts_are_valid(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    subprocess.run(["bash", "-n", script], check=True)
    for shell in SHELLS:
        text = printed(capsys, "completion", shell)
        for word in ("train", "hopper-medium-v2", "snapshot-every", "td3+ofe"):
            assert word in text


def test_an_unknown_shell_is_refused(failing_command: FailingCommand) -> None:
    message = failing_command("completion", "bahs")
    assert message == "unknown shell 'bahs'; did you mean 'bash'? allowed: bash, zsh, tcsh"


def test_a_shell_starts_without_pytorch_and_other_commands_without_shtab() -> None:
    program = (
        "import sys; from td7.cli.main import main; main(['list', 'studies']); "
        "assert 'shtab' not in sys.modules; main(['completion', 'bash']); "
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], stdout=subprocess.DEVNULL, check=True)


def test_names_that_stand_here_again_are_those_of_the_package() -> None:
    assert tuple(ALGORITHMS) == ALGORITHM_NAMES
    assert tuple(RECORDED_KINDS) == KINDS


def _names(parser: argparse.ArgumentParser) -> set[str]:
    """What entries of the tables may be called that are for this parser, or for its commands."""
    command = parser.prog.partition(" ")[2]
    names = {name for a in parser._actions for name in (a.dest, f"{command} {a.dest}")}
    commands: Sequence[argparse.ArgumentParser] = [
        own
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for own in action.choices.values()
    ]
    return names.union(*map(_names, commands))


def test_every_entry_is_of_an_option_or_argument() -> None:
    assert _names(whole_parser()) >= {*PATHS, *_words()}


def test_the_page_and_the_help_install_it_alike(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[1] / "docs" / "reference" / "command-line.md").read_text()
    text = printed(capsys, "completion", "--help")
    lines = [line.strip() for line in text.splitlines() if line.startswith("  ")]
    commands = [line for line in lines if "td7 completion " in line or line.startswith("source")]
    assert len(commands) == 4
    assert completion.HELP in " ".join(text.split()).lower()
    for line in commands:
        assert line in page
