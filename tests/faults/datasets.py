"""Bad HDF5 files: refused in one line, or read as a plain program reads them.

A third are built to be bad in a known way, and must be refused; some are only unusual, and must be
read. The others are good files with spoilt bytes, of which HDF5 itself may notice nothing.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from dataset_files import Fields, fields_of
from faults import edits, samples
from faults.campaign import Outcome
from faults.canaries import Canaries
from faults.edits import Random, one_of
from faults.forks import in_child, in_lanes, in_loaded_process
from faults.verdicts import changed, check_ended, check_refused, tree
from td7.cli.main import main
from td7.datasets.read import read

NAME = "datasets"
FULL = 1_000
QUICK = 15

FIELDS = ("observations", "actions", "next_observations", "rewards", "terminals", "timeouts")
ROWS = 40
FILE = "data.hdf5"
MEMORY = 1 << 30  # bytes that a refusal may take in addition to the libraries'
COMMANDS: Mapping[str, Sequence[str]] = {
    "info": ("dataset", "info", FILE, "--json"),
    "train": (
        *("train", "td3+bc", "--dataset", FILE, "--env", samples.TASK, "--steps", "2", "--quiet"),
        *("--out", "new", "--set", "hidden_dim=16", "batch_size=16"),
    ),
}


def fields() -> Fields:
    """Fields of the toy task: two states, two actions."""
    made = fields_of("..T...C.T......C" * (ROWS // 16) + "." * (ROWS % 16))
    for name in ("observations", "next_observations"):
        made[name] = made[name][:, :2]
    return made


Build = Callable[[Path, Path], None]  # makes a file; the folder with what must not be read


def _save(path: Path, changes: Mapping[str, Any] = {}, **options: Any) -> None:
    """A good file but for these fields, without those that are None."""
    with h5py.File(path, "w") as file:
        for name, array in {**fields(), **changes}.items():
            if array is not None:
                file.create_dataset(name, data=array, **options)


def _with(**changes: Any) -> Build:
    return lambda path, _: _save(path, changes)


def _edited(edit: Callable[[Any], None]) -> Build:
    """A good file that `edit(file)` spoils."""

    def build(path: Path, _: Path) -> None:
        _save(path)
        with h5py.File(path, "r+") as file:
            edit(file)

    return build


def _replaced(name: str, make: Callable[[Any, Path], None]) -> Build:
    """A good file with another object of this name, which may refer to files outside."""

    def build(path: Path, outside: Path) -> None:
        _save(path, {name: None})
        with h5py.File(path, "r+") as file:
            make(file, outside)

    return build


def _attribute(name: str, value: Any) -> Build:
    return _edited(lambda file: file.attrs.__setitem__(f"td7.{name}", value))


def _external_storage(file: Any, outside: Path) -> None:
    storage = [(str(outside / "secret"), 0, 8 * ROWS)]
    file.create_dataset("rewards", (ROWS,), "f8", external=storage)


def _external_fifo(file: Any, outside: Path) -> None:
    file.create_dataset("rewards", (ROWS,), "f8", external=[(str(outside / "fifo"), 0, 8 * ROWS)])


def _external_link(file: Any, outside: Path) -> None:
    file["rewards"] = h5py.ExternalLink(str(outside / "secret.hdf5"), "/rewards")


def _virtual(file: Any, outside: Path) -> None:
    layout = h5py.VirtualLayout((ROWS,), "f8")
    layout[:] = h5py.VirtualSource(str(outside / "secret.hdf5"), "rewards", (ROWS,))
    file.create_virtual_dataset("rewards", layout)


def _linked_group(file: Any, outside: Path) -> None:
    """A path through a group that lies in another file."""
    file["group"] = h5py.ExternalLink(str(outside / "secret.hdf5"), "/")
    file["rewards"] = h5py.SoftLink("/group/rewards")


def _huge(rows: int) -> Build:
    """Arrays that declare many rows and store none."""

    def build(path: Path, _: Path) -> None:
        with h5py.File(path, "w") as file:
            for name, array in fields().items():
                shape = (rows, *array.shape[1:])
                chunks = (1 << 16, *array.shape[1:])
                file.create_dataset(name, shape, array.dtype, chunks=chunks, compression="gzip")

    return build


def _deep(file: Any) -> None:
    group = file
    for _ in range(2_000):
        group = group.create_group("g")
    group["rewards"] = file["rewards"]
    del file["rewards"]


def _unknown_filter(path: Path, _: Path) -> None:
    _save(path, {"rewards": None})
    with h5py.File(path, "r+") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((ROWS,))
        properties.set_filter(32_000, h5py.h5z.FLAG_OPTIONAL)  # LZF's, then renamed
        space = h5py.h5s.create_simple((ROWS,))
        h5py.h5d.create(file.id, b"rewards", h5py.h5t.IEEE_F64LE, space, properties)
        file["rewards"][:] = 1.0
    data = path.read_bytes()
    path.write_bytes(data.replace((32_000).to_bytes(2, "little"), (31_999).to_bytes(2, "little")))


def _row(name: str, index: Any, value: Any) -> Build:
    array = fields()[name].astype(np.float64)
    array[index] = value
    return _with(**{name: array})


def _content(data: bytes) -> Build:
    def build(path: Path, _: Path) -> None:
        path.write_bytes(data)

    return build


def _module(path: Path, outside: Path) -> None:
    """A task whose module lies in the working folder; importing it would leave a trace."""
    _save(path)
    with h5py.File(path, "r+") as file:
        file.attrs["td7.task"] = "canary:Point-v0"
    (path.parent / "canary.py").write_text(f"open({str(outside / 'executed')!r}, 'w').close()\n")


_NUMBERS = np.arange(ROWS, dtype=np.float64)
_COMPOUND = np.zeros(ROWS, [("a", "f4"), ("b", "f4")])
_TEXTS = np.array([b"text"] * ROWS)
BAD: Mapping[str, Build] = {
    "external storage": _replaced("rewards", _external_storage),
    "external storage, a FIFO": _replaced("rewards", _external_fifo),
    "external link": _replaced("rewards", _external_link),
    "virtual dataset": _replaced("rewards", _virtual),
    "soft link through another file": _replaced("rewards", _linked_group),
    "a FIFO": lambda path, _: os.mkfifo(path),
    "a folder": lambda path, _: path.mkdir(),
    "an empty file": _content(b""),
    "text": _content(b"observations,actions\n"),
    "only HDF5's signature": _content(b"\x89HDF\r\n\x1a\n"),
    "10^10 rows": _huge(10**10),
    "10^12 rows": _huge(10**12),
    "2^60 rows": _huge(2**60),
    "soft link to itself": _replaced(
        "rewards", lambda f, _: f.__setitem__("rewards", h5py.SoftLink("/rewards"))
    ),
    "soft link to nothing": _replaced(
        "rewards", lambda f, _: f.__setitem__("rewards", h5py.SoftLink("/none"))
    ),
    "soft link in the file": _edited(
        lambda f: f.move("rewards", "r") or f.__setitem__("rewards", h5py.SoftLink("/r"))
    ),
    "a group": _replaced("rewards", lambda f, _: f.create_group("rewards") and None),
    "the root group": _replaced("rewards", lambda f, _: f.__setitem__("rewards", f["/"])),
    "a named type": _replaced("rewards", lambda f, _: f.__setitem__("rewards", np.dtype("f8"))),
    "no shape": _replaced("rewards", lambda f, _: f.__setitem__("rewards", h5py.Empty("f8"))),
    "one number": _with(rewards=1.0),
    "texts": _with(rewards=_TEXTS),
    "objects": _with(observations=np.array([b"a"] * ROWS, object)),
    "compound values": _with(rewards=_COMPOUND),
    "complex numbers": _with(rewards=_NUMBERS + 1j),
    "references": _replaced(
        "rewards", lambda f, _: f.create_dataset("rewards", (ROWS,), h5py.ref_dtype) and None
    ),
    "lists": _replaced(
        "rewards", lambda f, _: f.create_dataset("rewards", (ROWS,), h5py.vlen_dtype("f8")) and None
    ),
    "too few rows": _with(rewards=_NUMBERS[:-1]),
    "two columns of rewards": _with(rewards=np.zeros((ROWS, 2))),
    "observations [rows]": _with(observations=_NUMBERS),
    "observations [rows, 2, 1]": _with(observations=np.zeros((ROWS, 2, 1))),
    "observations [rows, 0]": _with(observations=np.zeros((ROWS, 0))),
    "other next observations": _with(next_observations=np.zeros((ROWS, 3))),
    "no rows": lambda path, _: _save(path, {n: a[:0] for n, a in fields().items()}),
    "nothing": lambda path, _: _save(path, dict.fromkeys(fields())),
    **{
        f"no {name}": _with(**{name: None})
        for name in ("observations", "actions", "rewards", "terminals")
    },
    "NaN in rewards": _row("rewards", 7, np.nan),
    "infinite observation": _row("observations", (7, 1), np.inf),
    "observation past float32": _row("observations", (7, 1), 1e300),
    "action out of bounds": _row("actions", (7, 1), 7.0),
    "half a terminal": _row("terminals", 7, 0.5),
    "terminals of -1": _row("terminals", 7, -1),
    "NaN timeout": _row("timeouts", 7, np.nan),
    "kwargs that are no JSON": _attribute("task_kwargs", "{"),
    "kwargs that are a list": _attribute("task_kwargs", "[1, 2]"),
    "kwargs nested deeply": _attribute("task_kwargs", "[" * 10_000),
    "cut rows of text": _attribute("cut_rows", "x"),
    "bounds of NaN": _attribute("action_low", [np.nan, -1.0]),
    "too many bounds": _attribute("action_high", [1.0, 1.0, 1.0]),
    "bounds of text": _attribute("action_high", "x"),
    "bounds reversed": _attribute("action_low", [2.0, 2.0]),
    "an unknown filter": _unknown_filter,
    "rewards deep in groups": _edited(_deep),
}
UNUSUAL: Mapping[str, Build] = {
    "double precision": lambda path, _: _save(
        path, {n: a.astype(np.float64) for n, a in fields().items()}
    ),
    "big-endian": lambda path, _: _save(path, {"rewards": fields()["rewards"].astype(">f8")}),
    "half precision": _with(rewards=fields()["rewards"].astype(np.float16)),
    "whole numbers": _with(rewards=np.arange(ROWS)),
    "columns": _with(rewards=_NUMBERS[:, None], terminals=fields()["terminals"][:, None]),
    "checked chunks": lambda path, _: _save(path, chunks=True, fletcher32=True),
    "other groups": _edited(lambda f: f.create_group("a/b/c") and None),
    "other attributes": _edited(lambda f: f.attrs.update(x=np.zeros(1000), y=b"\xff", td7=1)),
    "an external link elsewhere": _edited(
        lambda f: f.__setitem__("infos", h5py.ExternalLink("/nowhere/x.hdf5", "/x"))
    ),
    "no timeouts": _with(timeouts=None),
    "a task of a module, which --env replaces": _module,
    "no next observations": _with(next_observations=None),
}
GOOD: Sequence[Mapping[str, Any]] = (
    {},
    {"compression": "gzip"},
    {"compression": "lzf", "chunks": True, "shuffle": True},
    {"chunks": True, "fletcher32": True},
)


def run(trials: Sequence[int], seed: int, folder: Path) -> Outcome:
    return in_loaded_process(_run, trials, seed, folder)


def _run(trials: Sequence[int], seed: int, folder: Path) -> Outcome:
    return in_lanes(trials, folder, partial(_trial, seed))


def _trial(seed: int, number: int, folder: Path) -> str:
    random = np.random.default_rng([seed, number])
    outside, sandbox = folder / "outside", folder / "here"
    outside.mkdir()
    sandbox.mkdir()
    canaries = _set_canaries(outside)
    built = {**BAD, **UNUSUAL}
    # Each of these once, in their order; the others are spoilt bytes.
    what = list(built)[number // 3 % len(built)] if number % 3 == 0 else ""
    path = sandbox / FILE
    if what:
        built[what](path, outside)
    else:
        what = _spoil_good(path, random)
    command = one_of(("info", "info", "train"), random)
    before = tree(sandbox)
    result = in_child(partial(main, COMMANDS[command]), sandbox)
    try:
        canaries.check(result)
        check_ended(result)
        if result.status:
            check_refused(result)
            assert result.status == 2, f"exit status {result.status}: {result.err[:200]!r}"
            assert what not in UNUSUAL, f"refused: {result.err[:200]!r}"
            assert changed(before, tree(sandbox)) == [], "it wrote something"
            assert result.memory < MEMORY, f"a refusal took {result.memory / 1e9:.1f} GB"
            return f"{command}: refused"
        assert what not in BAD, f"accepted: {result.out[:200]!r}"
        _check_values(path, sandbox)
    except AssertionError as error:
        raise AssertionError(f"{command}, {what}: {error}") from None
    return f"{command}: read as a plain program reads it"


def _spoil_good(path: Path, random: Random) -> str:
    options = one_of(GOOD, random)
    _save(path, **options)
    data = path.read_bytes()
    name = one_of(sorted(edits.BYTE_EDITS), random)
    after = edits.BYTE_EDITS[name](data, random)
    path.write_bytes(after)
    return f"{name} in a file with {options or 'no options'}"


def _check_values(path: Path, sandbox: Path) -> None:
    """Raise unless the package's rows are those of a plain program, number by number."""
    rows = sandbox / "rows.npy"
    result = in_child(partial(_dump_rows, path, rows), sandbox)
    assert result.status == 0, f"reading it again: {result.text[-300:]!r}"
    expected = plain_rows(path)
    read = np.load(rows)
    assert read.shape == expected.shape, f"{len(read)} rows, not {len(expected)}"
    wrong = np.argwhere(~np.isclose(read, expected, rtol=1e-6, atol=1e-6))
    assert not len(wrong), f"row and column {wrong[0]}: {read[tuple(wrong[0])]}"


def _dump_rows(path: Path, out: Path) -> int:
    np.save(out, read(path).rows)
    return 0


def plain_rows(path: Path) -> NDArray[Any]:
    """The rows of a file with action bounds of [-1, 1], one by one."""
    with h5py.File(path) as file:
        columns = {name: np.asarray(file[name][...], np.float32) for name in file if name in FIELDS}
    count = len(columns["rewards"])
    ends = columns["terminals"].reshape(-1) > 0
    cuts = columns["timeouts"].reshape(-1) > 0 if "timeouts" in columns else np.zeros(count, bool)
    following = columns.get("next_observations")
    rows = []
    for i in range(count):
        if (cuts[i] and not ends[i]) or (following is None and i == count - 1):
            continue
        next_state = columns["observations"][i + 1] if following is None else following[i]
        reward = np.float32(columns["rewards"].reshape(-1)[i])
        action = columns["actions"][i].clip(-1, 1)
        rows.append([*columns["observations"][i], *action, *next_state, reward, float(not ends[i])])
    return np.array(rows, np.float32)


def _set_canaries(outside: Path) -> Canaries:
    """Files that a dataset may name, but that must not be read."""
    (outside / "secret").write_bytes(np.full(ROWS, 0.123).tobytes())
    _save(outside / "secret.hdf5", {"rewards": np.full(ROWS, 0.123)})
    os.mkfifo(outside / "fifo")
    return Canaries(outside)
