"""HDF5 files hold their own data: what leads out of one is refused before anything is read.

HDF5 can take a dataset's bytes from any other file, and load a filter's code. It also declares
sizes that have nothing to do with the file's own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import h5py

from td7.datasets.checks import reading
from td7.errors import InputError
from td7.memory import free_bytes
from td7.types import aligned

BUILT_IN = {  # of HDF5 and h5py; others are libraries that HDF5 looks for and loads
    h5py.h5z.FILTER_DEFLATE,
    h5py.h5z.FILTER_SHUFFLE,
    h5py.h5z.FILTER_FLETCHER32,
    h5py.h5z.FILTER_SZIP,
    h5py.h5z.FILTER_NBIT,
    h5py.h5z.FILTER_SCALEOFFSET,
    h5py.h5z.FILTER_LZF,
}
HEAP = b"GCOL\1\0\0\0"  # how a heap of strings begins


@contextmanager
def open_hdf5(path: Path, where: str) -> Iterator[h5py.File]:
    """Open a file for reading; `where` names it in errors."""
    if not path.is_file():  # opening a FIFO would wait for ever
        raise InputError(f"{where} is not a file")
    if not h5py.is_hdf5(path):
        raise InputError(f"{where} is not an HDF5 file")
    with reading(where), h5py.File(path, "r") as file:
        yield file


def member(where: str, group: Any, name: str) -> Any:
    """Return a group's member, whose bytes are in this file."""
    link = group.get(name, getlink=True)
    if not isinstance(link, h5py.HardLink):
        kind = "an external link" if isinstance(link, h5py.ExternalLink) else "a soft link"
        raise InputError(f"{where}: {name} is {kind}; allowed: data in the file itself")
    found = group[name]
    if isinstance(found, h5py.Dataset):
        _check_storage(f"{where}: {name}", found)
    return found


def all_datasets(where: str, group: Any) -> list[h5py.Dataset]:
    """Return every dataset in a group and in the groups below, all of them in this file."""
    found: list[h5py.Dataset] = []
    groups, seen = [group], set()
    while groups:
        current = groups.pop()
        address = h5py.h5o.get_info(current.id).addr
        if address in seen:  # a group may contain itself
            raise InputError(f"{where}: the group {current.name} has two names; allowed: one")
        seen.add(address)
        for name in current:
            other = member(where, current, name)
            (groups if isinstance(other, h5py.Group) else found).append(other)
    return found


def check_memory(where: str, fields: list[h5py.Dataset]) -> None:
    """Raise if the sizes that the fields declare do not fit into the free memory."""
    # Their numbers are read as float32 at least, and held once more as the rows of the replay.
    needed = sum(2 * max(4, f.dtype.itemsize) * prod(f.shape or ()) for f in fields)
    # One chunk at a time, which may be larger than what is used of it.
    needed += max((f.dtype.itemsize * prod(f.chunks or (1,)) for f in fields), default=0)
    free = free_bytes()
    if free is not None and needed > free:
        raise InputError(
            f"{where} needs {needed / 1e9:.1f} GB of memory, but only {free / 1e9:.1f} GB are free"
        )


def check_strings(path: Path, where: str) -> None:
    """Raise for a damaged heap of strings: in some of those HDF5 would search for ever.

    A heap is its head, with its length, and objects, each with its number and its length; number 0
    is the free space at the end.
    """
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        at = content.find(HEAP)
        while at >= 0:
            begin, at, end = at, at + 16, 0
            if at <= len(content):
                end = begin + int.from_bytes(content[begin + 8 : at], "little")
            while at + 16 <= end:
                number = int.from_bytes(content[at : at + 2], "little")
                length = int.from_bytes(content[at + 8 : at + 16], "little")
                length = 16 + aligned(length, 8) if number else length
                if length < 16 or at + length > min(end, len(content)):
                    raise InputError(f"{where} cannot be read: its heap of strings is damaged")
                at += length
            at = content.find(HEAP, begin + 1)


def _check_storage(what: str, field: h5py.Dataset) -> None:
    if field.external:
        raise InputError(f"{what} is stored in other files; allowed: data in the file itself")
    if field.is_virtual:
        raise InputError(f"{what} is a virtual dataset; allowed: data in the file itself")
    settings = field.id.get_create_plist()
    for i in range(settings.get_nfilters()):
        code, _, _, name = settings.get_filter(i)
        if code not in BUILT_IN:
            label = f"{code} ({name.decode(errors='replace')})" if name else str(code)
            raise InputError(f"{what} needs the filter {label!r}; allowed: those of HDF5 itself")
