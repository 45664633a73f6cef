"""Users' scripts may define tasks, which worker processes then register as well."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from folders import SMALL

NO_TASK = """
import td7
run = td7.train(env="toys:Point-v0", steps=40, workers=2, out="run", quiet=True,
                evaluation_episodes=1, set={settings})
print("episodes", len(run.episodes))
"""
OWN_TASK = """
import gymnasium, toys

class Mine(toys.Point):
    pass

gymnasium.register("Mine-v0", entry_point=Mine, max_episode_steps=20)
print("defined", flush=True)
import td7
run = td7.train(env="Mine-v0", steps=40, workers=2, out="run", quiet=True,
                evaluation_episodes=1, set={settings})
print("episodes", len(run.episodes))
"""
TASK_OF_A_MODULE = OWN_TASK.replace("entry_point=Mine", "entry_point=toys.Point")

SCRIPTS = {"no task": NO_TASK, "own task": OWN_TASK, "task of a module": TASK_OF_A_MODULE}


def run_script(folder: Path, words: Sequence[str], text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        input=text,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("checkpoints", ["minimum", "none"])
def test_workers_import_a_script_only_for_a_task_that_it_defines(
    tmp_path: Path, script: str, checkpoints: str
) -> None:
    """They import it up to where it trains, so it needs no `if __name__ == "__main__"`."""
    settings = {**SMALL, "checkpoints": checkpoints}
    file = tmp_path / "script.py"
    file.write_text(SCRIPTS[script].replace("{settings}", repr(settings)))
    done = run_script(tmp_path, [str(file)], "")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "episodes 2"
    # By the script itself, and by each of two workers that must.
    definitions = {"no task": 0, "own task": 3, "task of a module": 1}
    assert done.stdout.count("defined") == definitions[script]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "script.py"]


def test_workers_cannot_make_a_task_that_a_program_without_a_file_defines(tmp_path: Path) -> None:
    """A notebook, for example; a task that a module defines can be sent to workers."""
    settings = repr(dict(SMALL))
    sent = run_script(tmp_path, ["-"], TASK_OF_A_MODULE.replace("{settings}", settings))
    assert (sent.returncode, sent.stderr) == (0, "")
    (tmp_path / "run").rename(tmp_path / "before")
    refused = run_script(tmp_path, ["-"], OWN_TASK.replace("{settings}", settings))
    message = refused.stderr.splitlines()[-1]
    prefix = "td7.errors.InputError: worker processes cannot make the task 'Mine-v0': the program"
    assert message.startswith(prefix)
    assert message.endswith(
        "move the task to a module and name it 'module:Mine-v0', or use workers=0 and processes=1"
    )
