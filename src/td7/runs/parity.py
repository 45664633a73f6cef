"""Parity: the XOR of several files' bytes, from which any one of the files can be rebuilt.

Files shorter than the longest count as padded with zeros, so the parity is as long as the longest.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import numpy as np

CHUNK = 1 << 20  # bytes that are read at a time


class Parity:
    """The XOR of everything that was added."""

    def __init__(self) -> None:
        self.content = bytearray()

    def add(self, data: bytes, begin: int = 0) -> None:
        """XOR `data` into the bytes from `begin` on."""
        end = begin + len(data)
        if end > len(self.content):
            self.content.extend(bytes(end - len(self.content)))
        if data:
            part = np.frombuffer(self.content, np.uint8, len(data), begin)
            part ^= np.frombuffer(data, np.uint8)

    def add_file(self, path: Path) -> None:
        begin = 0
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                self.add(chunk, begin)
                begin += len(chunk)


class ParityWriter:
    """Writes to a file, and adds the same bytes to a parity."""

    def __init__(self, file: BinaryIO, parity: Parity) -> None:
        self._file = file
        self._parity = parity
        self._written = 0

    def write(self, data: bytes) -> int:
        self._parity.add(data, self._written)
        self._written += len(data)
        return self._file.write(data)


def rebuild(others: Iterable[Path], size: int) -> bytearray:
    """Return a file's content, from its size, its parity file and all other files of its group."""
    parity = Parity()
    for path in others:
        parity.add_file(path)
    del parity.content[size:]
    return parity.content
