"""Checksums made right again after an edit, as by someone who edits a file on purpose."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from td7.runs.trust import sign

SEAL = "sha256"  # in a JSON object: of everything else in it


def renew(file: Path) -> bool:
    """Correct every checksum and signature of a file of a run or study; whether there was one."""
    if not file.is_file():
        return False
    is_renewed = _seal(file)
    if file.name == "config.json":
        sign(file.parent)
        is_renewed = True
    content = file.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    digest = {"sha256": sha256, "bytes": len(content)}
    is_renewed |= _state(file.with_name("policy.json"), "weights", file.name, sha256)
    is_renewed |= _state(file.with_name("finished.json"), "files", file.name, digest)
    snapshots = next((p for p in file.parents if p.name == "snapshot"), None)
    for manifest in snapshots.glob("*/manifest.json") if snapshots else ():
        name = file.relative_to(manifest.parents[1]).as_posix()
        is_renewed |= _state(manifest, "files", name, digest)
    return is_renewed


def _state(statement: Path, key: str, name: str, digest: object) -> bool:
    """Have a JSON file state this digest of a file, if it states one."""
    data = _object(statement)
    digests = data.get(key)
    if not isinstance(digests, dict) or name not in digests:
        return False
    digests[name] = digest
    statement.write_text(json.dumps(data))
    _seal(statement)
    return True


def _seal(file: Path) -> bool:
    data = _object(file)
    if SEAL not in data:
        return False
    rest = {name: value for name, value in data.items() if name != SEAL}
    text = json.dumps(rest, sort_keys=True)
    file.write_text(json.dumps({**rest, SEAL: hashlib.sha256(text.encode()).hexdigest()}))
    return True


def _object(file: Path) -> Mapping[str, Any]:
    """The JSON object that a file holds, or an empty one."""
    if file.suffix != ".json" or not file.is_file():
        return {}
    try:
        data = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
