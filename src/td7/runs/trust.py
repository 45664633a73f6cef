"""What a run folder may make this program do: everything if this user made it, else nothing new.

config.json names the task, perhaps in a module, and the arguments that it is made with. In a folder
from a stranger these would run any code that can be imported. A folder that is made here therefore
holds a signature, which only this user can make; what another folder names, the user must name.

    config.mac    HMAC-SHA256 of config.json, one per line: a rewrite lists the old file's as well

The key is in ~/.config/td7/key. Where it cannot be kept, folders stay unsigned.
"""

import hmac
import os
import secrets
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from td7.errors import InputError, one_line
from td7.files import write
from td7.runs.record import RunRecord
from td7.types import Task

SIGNATURE = "config.mac"
KEY_BYTES = 32
MOST_BYTES = 1_000  # of a signature file


def sign(folder: Path, config: bytes | None = None) -> None:
    """Sign config.json as it is, and `config`, which is about to replace it.

    A kill between the two writes leaves one of them, which is signed either way.
    """
    key = _key()
    if key is None:
        return
    contents = [] if config is None else [config]
    with suppress(FileNotFoundError):
        contents.append((folder / "config.json").read_bytes())
    write(folder / SIGNATURE, b"".join(_mac(key, content) + b"\n" for content in contents))


def is_signed(folder: Path) -> bool:
    """Whether this user made config.json, or vouched for it."""
    file = folder / SIGNATURE
    key = _read_key() if file.is_file() else None
    if key is None:
        return False
    try:
        expected = _mac(key, (folder / "config.json").read_bytes())
        with file.open("rb") as lines:
            signatures = lines.read(MOST_BYTES).split()
    except OSError:
        return False
    return any(hmac.compare_digest(expected, signature) for signature in signatures)


def check_names(record: RunRecord, task: Task, *, algorithm: str = "", trust: bool = False) -> bool:
    """Return whether the user vouches for a run folder; raise if it may not name what it names.

    `task` is the one to make, since a policy's file also has one; `algorithm` is the one to look
    up, if any. `trust` is the user's word, which replaces a signature.
    """
    if trust or (is_signed(record.folder) and task == record.task):
        return True
    where = f"{record.folder} is not signed with your key and"
    if module := foreign_module(task.id, *(w.name for w in task.wrappers), algorithm):
        raise InputError(
            f"{where} names the module {module!r}: add --import {module} if you trust it"
        )
    if argument := text_argument(task):
        raise InputError(
            f"{where} passes its task the text {argument}: add --trust if you trust its author"
        )
    return False


def check_task(record: RunRecord, task: Task, *, trust: bool = False) -> None:
    """Likewise for a command that only plays; the user's word becomes a signature."""
    check_names(record, task, trust=trust)
    if trust and not is_signed(record.folder):
        with suppress(OSError):  # another user's folder need not be writable
            sign(record.folder)


def foreign_module(*names: str) -> str:
    """Return the first module of names such as `module:Id-v0` that is not imported yet, or ""."""
    modules = (name.rpartition(":")[0] for name in names)
    return next((module for module in modules if module and module not in sys.modules), "")


def text_argument(task: Task) -> str:
    """Return the first argument of a task or of its wrappers with text in it as name=value, or "".

    Text may be the path of a file that a task reads, or a task that it makes.
    """
    every = [*task.kwargs.items(), *(item for w in task.wrappers for item in w.kwargs.items())]
    return next((one_line(f"{k}={v!r}")[:200] for k, v in every if _has_text(v)), "")


def _has_text(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_text, value.values()))
    if isinstance(value, Iterable) and not isinstance(value, str):
        return any(map(_has_text, value))
    return isinstance(value, str)


# -- the key ---------------------------------------------------------------------------------------


def _mac(key: bytes, content: bytes) -> bytes:
    return hmac.digest(key, content, "sha256").hex().encode()


def _key_file() -> Path | None:
    """Return where the key is; None if this user has no home."""
    folder = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    try:
        base = folder if folder.is_absolute() else Path.home() / ".config"
    except RuntimeError:
        return None
    return base / "td7" / "key"


def _read_key() -> bytes | None:
    file = _key_file()
    try:
        key = file.read_bytes() if file else b""
    except OSError:
        return None
    return key if len(key) == KEY_BYTES else None


def _key() -> bytes | None:
    """Return the key, which is made at its first use; None if it cannot be kept."""
    if (key := _read_key()) is not None:
        return key
    if (file := _key_file()) is None:
        return None
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Complete before it has its name; a link does not replace the key of another process.
        with tempfile.NamedTemporaryFile(dir=file.parent) as new:  # of mode 0600
            new.write(secrets.token_bytes(KEY_BYTES))
            new.flush()
            os.fsync(new.fileno())
            file.hardlink_to(new.name)
    return _read_key()
