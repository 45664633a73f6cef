"""Users' scripts may define tasks, which worker processes then register as well."""

import subprocess
import sys
from pathlib import Path

import pytest

from folders import SMALL

OWN_TASK = """
import gymnasium, toys

class Mine(toys.Point):
    pass

gymnasium.register("Mine-v0", entry_point=Mine, max_episode_steps=20)
print("defined", flush=True)
"""
LOCKED_TASK = """
import gymnasium, threading, toys

lock = threading.Lock()  # which cannot be sent to another process

class Mine(toys.Point):
    lock = lock

gymnasium.register("Mine-v0", entry_point=Mine, max_episode_steps=20)
print("defined", flush=True)
"""
TASK_OF_A_MODULE = """
import gymnasium, toys

gymnasium.register("Other-v0", entry_point=toys.Point, max_episode_steps=20)
print("defined", flush=True)
"""


def training(task: str, checkpoints: str) -> str:
    """Return the part of a script that trains, with two workers."""
    options = {
        "env": task,
        "steps": 40,
        "evaluation_episodes": 1,
        "set": {**SMALL, "checkpoints": checkpoints},
        "workers": 2,
        "out": f"{task.partition(':')[0]}-{checkpoints}",
        "quiet": True,
    }
    return f"""
import td7
run = td7.train(**{options})
print("episodes", len(run.episodes))
"""


def run(folder: Path, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        input=text,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("definition", "task", "definitions"),
    [
        ("", "toys:Point-v0", 0),
        (OWN_TASK, "Mine-v0", 1),
        (LOCKED_TASK, "Mine-v0", 5),  # by the script, and by two workers of either kind
        (TASK_OF_A_MODULE, "Other-v0", 1),
    ],
    ids=["no task", "own task", "locked task", "task of a module"],
)
def test_workers_import_a_script_only_for_a_task_that_cannot_be_sent(
    tmp_path: Path, definition: str, task: str, definitions: int
) -> None:
    """They import it up to where it trains, so it needs no `if __name__ == "__main__"`."""
    script = definition + training(task, "minimum") + training(task, "none")
    (tmp_path / "script.py").write_text(script)
    done = run(tmp_path, "script.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("episodes 2") == 2
    assert done.stdout.count("defined") == definitions
    assert len(list(tmp_path.iterdir())) == 3  # two runs and the script


def test_without_a_file_a_task_that_cannot_be_sent_is_one_line(tmp_path: Path) -> None:
    """In a notebook, for example."""
    program = TASK_OF_A_MODULE + training("Other-v0", "minimum")
    program += LOCKED_TASK + training("Mine-v0", "minimum")
    done = run(tmp_path, "-", text=program)
    assert done.stdout.count("episodes 2") == 1  # of the first training
    assert done.stderr.startswith("Traceback")  # and no warning before it
    message = done.stderr.splitlines()[-1]
    prefix = "td7.errors.InputError: worker processes cannot make the task 'Mine-v0', because it "
    assert message.startswith(prefix)
    assert message.endswith(
        "move the task to a module and name it 'module:Mine-v0', or use workers=0 and processes=1"
    )
