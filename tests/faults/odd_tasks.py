"""Tasks that disturb the process that plays them; `faults.odd_tasks:Odd-v0` is all of them."""

import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium

import toys


def _close_output() -> None:
    sys.stdout.close()
    sys.stderr.close()


def _leave_folder() -> None:
    """Delete the working folder's name from under the process."""
    folder = Path("odd-working-folder").absolute()
    folder.mkdir(exist_ok=True)
    os.chdir(folder)
    folder.rmdir()


def _ignore_signals() -> None:
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_IGN)


def _fill_environment() -> None:
    os.environ.clear()
    os.environ["TMPDIR"] = "/nowhere"


DEEDS: Mapping[str, Callable[[], object]] = {
    "changes the folder": lambda: os.chdir("/"),
    "deletes the folder": _leave_folder,
    "closes the output": _close_output,
    "prints": lambda: print("odd\n" * 100, file=sys.stderr) or print("odd"),
    "warns": lambda: warnings.warn("odd", stacklevel=1),
    "ignores signals": _ignore_signals,
    "clears the environment": _fill_environment,
    "starts a thread": lambda: threading.Thread(target=threading.Event().wait, daemon=True).start(),
    "starts a program": lambda: subprocess.Popen(["true"]).wait(),
    "ends the process": lambda: os._exit(3),
    "is killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
}


class Odd(toys.Point):
    """The point, which does what `deed` names in its third step."""

    def __init__(self, deed: str = "") -> None:
        super().__init__()
        self._deed = deed

    def step(self, action: Any) -> Any:
        result = super().step(action)
        if self._steps == 3:
            DEEDS[self._deed]()
        return result


class Reader(toys.Point):
    """The point, which reads the file that its argument names."""

    def __init__(self, path: str = "") -> None:
        super().__init__()
        Path(path).read_text()


gymnasium.register("Odd-v0", entry_point="faults.odd_tasks:Odd", max_episode_steps=20)
gymnasium.register("Reader-v0", entry_point="faults.odd_tasks:Reader", max_episode_steps=20)
