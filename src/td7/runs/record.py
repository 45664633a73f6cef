"""What a run folder says of its run: config, versions, how it ended."""

import csv
import hashlib
import importlib.metadata
import json
import platform
import shlex
import sys
from functools import cache
from pathlib import Path
from typing import Any

from td7 import __version__
from td7.errors import InputError

FINISHED = "finished.json"


def folder_of(path: Path) -> tuple[Path, int | None]:
    """A run folder, and the step of policies that it kept, if they are meant."""
    is_kept = path.parent.name == "policies" and path.name.isdigit()
    return (path.parent.parent, int(path.name)) if is_kept else (path, None)


def read_config(path: Path) -> dict[str, Any]:
    """config.json of a run folder."""
    if not path.exists():
        raise InputError(f"{path} does not exist")
    if not path.is_dir():
        raise InputError(f"{path} is a file, not a run folder")
    file = path / "config.json"
    try:
        data = json.loads(file.read_text())
    except FileNotFoundError:
        raise InputError(f"{path} holds no run: it has no config.json") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{file} cannot be read: {error}") from None
    if not isinstance(data, dict):
        raise InputError(f"{file} is damaged: it holds no JSON object")
    return data


def finished_steps(path: Path) -> int | None:
    """The steps that a finished run made; None for others."""
    try:
        return int(json.loads((path / FINISHED).read_text())["steps"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path / FINISHED} is damaged: {error}") from None


def total_seconds(path: Path) -> float | None:
    """How long a finished run took; None for others."""
    if finished_steps(path) is None:
        return None
    with (path / "timings.csv").open() as file:
        found = {row["phase"]: float(row["seconds"]) for row in csv.DictReader(file)}
    return found.get("total")


def versions() -> dict[str, str]:
    """What a result depends on besides its config."""
    packages = ("torch", "numpy", "gymnasium", "mujoco")
    found = {name: importlib.metadata.version(name) for name in packages}
    own = {"td7": __version__, "source": source(), "python": platform.python_version()}
    return {**own, **found}


@cache
def source() -> str:
    """Tells this program from an edited one of the same version: a digest of its Python files."""
    folder = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        digest.update(f"{file.relative_to(folder).as_posix()}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:12]


def command_line() -> str:
    """What started this, to be given to a shell again, whether by `td7` or by `python -m td7`."""
    name = Path(sys.argv[0])
    is_module = name.name == "__main__.py" and name.parent.name == "td7"
    return shlex.join(["td7" if is_module else name.name, *sys.argv[1:]])
