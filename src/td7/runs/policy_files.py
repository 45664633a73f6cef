"""A folder of policies: a safetensors file per member, and policy.json with their checksums.

    weights    the SHA-256 of each file
    before     only while files are replaced: SHA-256 and steps of the files as they were

policy.json is written before the files that it describes, and once more if it had to describe two
versions of them. So a kill at any moment leaves policies that load.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from td7.errors import InputError
from td7.files import read_sealed, typed, write, write_sealed

DESCRIPTION = "policy.json"
UNVERIFIED = "was saved before policies had checksums: td7 cannot tell whether it is damaged"


def weights_file(folder: Path, id: int, kind: str = "seed") -> Path:
    """The file of a member, whose id is its seed or, where hyperparameters vary, its number."""
    return folder / f"{kind}-{id}.safetensors"


def weights_files(folder: Path) -> Iterator[Path]:
    """All of them, of any member."""
    for kind in ("seed", "member"):
        yield from (file for file in folder.glob(f"{kind}-*.safetensors") if file.is_file())


def read_description(folder: Path) -> dict[str, Any]:
    """Return policy.json, whose own checksum must be right if it has one."""
    file = folder / DESCRIPTION
    data = read_sealed(file, "weights")
    try:
        for name in ("weights", "before"):
            typed(name, data.get(name, {}), dict)
        for earlier in data.get("before", {}).values():
            typed("before", earlier, dict)
    except InputError as error:
        raise InputError(f"{file} is damaged: {error}") from None
    return data


def has_checksums(description: Mapping[str, Any]) -> bool:
    return "weights" in description


def steps_of(description: Mapping[str, Any], file: Path, id: int, content: bytes) -> int | None:
    """Return the steps that a policy was trained for, if they are known; raise if it is damaged."""
    if has_checksums(description):
        digest = hashlib.sha256(content).hexdigest()
        before = description.get("before", {}).get(file.name, {})
        if digest == before.get("sha256"):
            return before.get("steps")  # type: ignore[no-any-return]  # of JSON
        if digest != description["weights"].get(file.name):
            raise InputError(f"{file} is damaged: it does not have the SHA-256 of {DESCRIPTION}")
    with suppress(LookupError, TypeError, ValueError, AttributeError):
        steps: Any = description["steps"]
        ids = description.get("numbers") or description["seeds"]
        return int(steps[ids.index(id)] if isinstance(steps, list) else steps)
    return None


def write_policies(
    folder: Path, description: Mapping[str, Any], weights: Mapping[int, bytes]
) -> None:
    """Write the weights of some members, and a description of these and those that are there."""
    folder.mkdir(parents=True, exist_ok=True)
    earlier = _earlier(folder)
    kind = "member" if description.get("numbers") else "seed"
    files = {weights_file(folder, id, kind): content for id, content in weights.items()}
    digests = {file.name: hashlib.sha256(content).hexdigest() for file, content in files.items()}
    before = {}
    for id, file in zip(weights, files, strict=True):
        with suppress(InputError, OSError):  # it is damaged, or there is none
            content = file.read_bytes()
            steps = steps_of(earlier, file, id, content)
            if content != files[file]:
                digest = hashlib.sha256(content).hexdigest()
                before[file.name] = {"sha256": digest, "steps": steps}
    ids = description.get("numbers") or description["seeds"]
    names = {weights_file(folder, id, kind).name for id in ids}
    kept = {name: sha256 for name, sha256 in earlier["weights"].items() if name in names}
    known = dict(sorted({**kept, **digests}.items()))
    final = {**description, "weights": known}
    write_sealed(folder / DESCRIPTION, {**final, "before": before} if before else final)
    for file, content in files.items():
        write(file, content)
    if before:
        write_sealed(folder / DESCRIPTION, final)


def _earlier(folder: Path) -> Mapping[str, Any]:
    """Return what policy.json says of the files that are there."""
    data: dict[str, Any] = {}
    with suppress(InputError, FileNotFoundError):
        data = read_description(folder)
    if "weights" in data:
        return data
    files = weights_files(folder)
    return {**data, "weights": {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in files}}
