"""The command line: its commands, one-line errors, and exit statuses."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch

import td7
import toys
from commands import ENV, TINY, FailingCommand, all_files, printed, run_process
from folders import SMALL, words
from td7.algorithms import ALGORITHMS
from td7.cli.main import COMMANDS, build_parser, main
from td7.types import PAPER_TASKS

assert toys  # registers the tasks


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tran"], "unknown command 'tran'; did you mean 'train'?"),
        (["Train"], "did you mean 'train'?"),
        ([""], "an empty argument follows td7"),
        (["--foo"], "unknown option '--foo'"),
        (["--verson"], "did you mean '--version'?"),
        (["-x", "train"], "unknown option '-x'"),
        (["--", "train"], "'--'"),
        (["--"], "'--'"),
        (["study", "online", "--quantiles", "5"], "is a hyperparameter: --set quantiles=…"),
        (["resume", "nowhere", "--quantiles", "5"], "--quantiles: a resumed run keeps its"),
        (["evaluate", "nowhere", "--quantiles", "5"], "unknown option '--quantiles'; allowed: "),
        (["resume"], "the following arguments are required: DIR"),
        (["resume", "nowhere"], "nowhere does not exist"),
        (["resume", "nowhere", "--video", "a.mp4"], "unknown option '--video'"),
        (["evaluate"], "the following arguments are required: DIR"),
        (["evaluate", "nowhere"], "nowhere does not exist"),
        (["evaluate", "a", "--import", "toy"], "--import: module 'toy' cannot be imported: Mod"),
        (["resume", "a", "--import=toys", "--import=toy"], "--import: module 'toy' cannot be im"),
        (["evaluate", "a", "--import", ""], "an empty argument follows --import"),
        (["evaluate", "a", "--seed="], "--seed= has no value"),
        (["report", "a", "--out=--"], "--out=-- has no value"),
        (["export", "caf\udce9"], r"'caf\udce9' contains a character that is not valid text"),
        (["export", "a\0b"], r"'a\x00b' contains a character that is not valid text"),
        (["evaluate", "a", "b"], "unexpected argument 'b'"),
        (["list"], "the following arguments are required"),
        (["list", "algorithm"], "unknown list 'algorithm'; did you mean 'algorithms'?"),
        (["list", "algorithms", "td77"], "unknown algorithm 'td77'; did you mean 'td7'?"),
        (["list", "tasks", "td7"], "td7 list tasks: unexpected argument 'td7'"),
    ],
)
def test_a_mistake_gets_one_line(
    words: list[str], message: str, working_folder: Path, failing_command: FailingCommand
) -> None:
    assert message in failing_command(*words)
    assert all_files(working_folder) == {}


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 9 GiB"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 9 bytes"),
        torch.OutOfMemoryError("CUDA out of memory. Tried 9 GiB"),
    ],
)
def test_a_lack_of_memory_gets_one_line(
    error: Exception,
    working_folder: Path,
    failing_command: FailingCommand,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def too_large(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("td7.training.lockstep.LockstepTraining.__init__", too_large)
    options = ["--steps", "20", "--set", "random_steps=10", "--quiet", "--out", "run"]
    message = failing_command("train", "td3", *ENV, *options, status=1)
    assert message.startswith("out of memory (")
    assert "); try fewer seeds at once, smaller networks or a smaller replay" in message
    hint = ", or --replay-device cpu to keep the replay in the host's memory"
    assert (hint in message) == ("CUDA" in str(error))
    assert "; `td7 resume run` tries again" in message


def test_other_errors_keep_their_traceback(
    working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("td7.training.start.check_memory", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        main(["train", "td3", *ENV, "--steps", "20", "--quiet"])


def test_a_task_can_be_in_a_module_in_the_working_folder(working_folder: Path) -> None:
    """For `td7` as for `python -m td7`."""
    (working_folder / "plant_here.py").write_text(
        "import gymnasium, toys\ngymnasium.register('Plant-v0', toys.Point, max_episode_steps=10)\n"
    )
    script = "import sys; sys.path.remove(''); from td7.cli.main import main; sys.exit(main())"
    words = ["train", "td3", "--env", "plant_here:Plant-v0", "--steps", "15", "--quiet"]
    done = subprocess.run(
        [sys.executable, "-c", script, *words, "--set", "random_steps=10"],
        capture_output=True,
        check=False,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def run_of_a_script(tmp_path: Path, working_folder: Path) -> Iterator[Path]:
    """A run whose task a script registered; the module `cart_here` registers it as well."""
    before = dict(gymnasium.registry)
    gymnasium.register("Cart-v0", "toys:Point", max_episode_steps=10)
    path = tmp_path / "run"
    assert (
        main(["train", "--env", "Cart-v0", *TINY, "--out", str(path), "--set", *words(SMALL)]) == 0
    )
    gymnasium.registry.pop("Cart-v0")
    (working_folder / "cart_here.py").write_text(
        "import gymnasium, toys\n\n\n"
        "class Cart(toys.Point): pass\n\n\n"
        "gymnasium.register('Cart-v0', Cart, max_episode_steps=10)\n"
    )
    yield path
    sys.modules.pop("cart_here", None)
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


@pytest.mark.parametrize(
    "words",
    [
        ["resume", "RUN", "--steps", "40", "--quiet"],
        ["evaluate", "RUN", "--episodes", "1"],
        ["dataset", "record", "--run", "RUN", "--kind", "expert", "--rows", "20"],
        ["dataset", "record", "--run", "RUN", "--kind", "expert", "--rows", "20", "--workers", "1"],
    ],
)
def test_import_registers_the_task_of_a_run(
    words: list[str], run_of_a_script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run's task names no module; the commands that make the task ask for one."""
    command = [word.replace("RUN", str(run_of_a_script)) for word in words]
    capsys.readouterr()
    assert main(command) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert message.startswith("td7: unknown task 'Cart-v0'; ")
    assert message.endswith("; for your own task, use --import MODULE, which registers it")
    assert "MODULE:ID" not in message
    assert main([*command, "--import", "json", "--import", "cart_here"]) == 0


def test_a_module_that_trains_when_it_is_imported_is_refused(
    run_of_a_script: Path, working_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such a script has no guard and would train again."""
    (working_folder / "script_here.py").write_text("import td7\ntd7.train(env='toys:Point-v0')\n")
    capsys.readouterr()
    assert main(["evaluate", str(run_of_a_script), "--import", "script_here"]) == 2
    message = "td7: --import: module 'script_here' uses td7 when it is imported: put that under"
    assert capsys.readouterr().err == f"{message} `if __name__ == '__main__':`\n"
    assert not (working_folder / "runs").exists()


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["--help"], ["-h"]):
        out = printed(capsys, *arguments)
        for command in ("train", "resume", "evaluate", "list", "--version"):
            assert command in out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, command, "--help")
    assert out.startswith(f"usage: td7 {command}")
    assert f"{COMMANDS[command].HELP[1:]}.\n" in out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = printed(capsys, "--version").splitlines()
    assert first == f"td7 {td7.__version__}"
    assert re.fullmatch(
        r"source \w{12}, python [\d.]+, torch \S+, numpy \S+, gymnasium \S+, mujoco \S+", second
    )


def test_list_names_algorithms_hyperparameters_and_tasks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    *lines, last = printed(capsys, "list", "algorithms").strip().split("\n")
    assert last == "`td7 list algorithms NAME` shows the hyperparameters of one algorithm."
    titles = [line for line in lines if line]
    for title, (name, algorithm) in zip(titles, ALGORITHMS.items(), strict=True):
        assert title.split(maxsplit=1) == [name, algorithm.summary]
        own, _, settings = printed(capsys, "list", "algorithms", name).partition("\n\n")
        assert own == title
        assert settings.startswith(f"hyperparameters of {name}, for --set:\n")
        assert settings.strip() in printed(capsys, "train", name, "--help")
    out = printed(capsys, "list", "tasks")
    for task in PAPER_TASKS:
        assert re.search(rf"^{task} +in the paper$", out, re.MULTILINE)
    assert "Hopper-v5\n" in out


def test_a_process_exits_with_the_status_of_the_command(tmp_path: Path) -> None:
    done = run_process("train", *ENV, "--seeds", "3-1", "--out", tmp_path / "run")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "td7: --seeds 3-1 runs backwards\n"
    assert all_files(tmp_path) == {}


def test_a_closed_pipe_is_no_error() -> None:
    """As in `td7 list tasks | head -n 1`."""
    reader, writer = os.pipe()
    os.close(reader)
    done = run_process("list", "tasks", stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_ends_the_process_while_libraries_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries may turn KeyboardInterrupt into other errors, so the default handler is set."""
    seen: list[object] = []

    def watched(words: Sequence[str]) -> Any:
        seen.append(signal.getsignal(signal.SIGINT))
        return build_parser(words)

    monkeypatch.setattr("td7.cli.main.build_parser", watched)
    before = signal.getsignal(signal.SIGINT)
    for handler in (signal.default_int_handler, signal.SIG_IGN):
        signal.signal(signal.SIGINT, handler)
        try:
            assert main(["list", "algorithms"]) == 0
            assert signal.getsignal(signal.SIGINT) is handler
        finally:
            signal.signal(signal.SIGINT, before)
    thread = threading.Thread(target=main, args=(["list", "algorithms"],))
    thread.start()
    thread.join()
    assert seen == [signal.SIG_DFL, signal.SIG_IGN, before]
