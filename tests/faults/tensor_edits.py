"""Ways to spoil arrays that are still arrays: safetensors' headers, numbers of either format."""

import struct
from collections.abc import Callable, Mapping

from faults.edits import JSON_EDITS, Edit, Random, one_of

LENGTH = 8  # bytes at the beginning of a safetensors file: the length of its header
NUMBERS = (float("nan"), float("inf"), -1e38, 1e-45, 0.0, 7.0)


def _of_header(edit: Edit) -> Edit:
    """An edit of the JSON of a safetensors file's header."""

    def of_file(data: bytes, random: Random) -> bytes:
        end = LENGTH + int.from_bytes(data[:LENGTH], "little")
        header = edit(data[LENGTH:end], random)
        return len(header).to_bytes(LENGTH, "little") + header + data[end:]

    return of_file


def _number(begin: Callable[[bytes], int]) -> Edit:
    """Replace four bytes behind the header by a float32."""

    def edit(data: bytes, random: Random) -> bytes:
        first = begin(data)
        count = (len(data) - first) // 4
        if not count:
            return data
        at = first + 4 * int(random.integers(count))
        return data[:at] + struct.pack("<f", one_of(NUMBERS, random)) + data[at + 4 :]

    return edit


def _npy_begin(data: bytes) -> int:
    return 10 + int.from_bytes(data[8:10], "little")


def _npy_header(data: bytes, random: Random) -> bytes:
    """Change the type, the order or the shape, in a header of the same length."""
    end = _npy_begin(data)
    header = data[10:end]
    old, new = one_of(
        (
            (b"<f4", b"<f8"),
            (b"<f4", b">f4"),
            (b"<f4", b"<i4"),
            (b"'<f4'", b"'|O'"),
            (b"False", b"True"),
            (b"(", b"(9"),
            (b"(", b"(-"),
            (b", ", b",\0"),
        ),
        random,
    )
    changed = header.replace(old, new, 1).rstrip()
    return data[:10] + changed.ljust(len(header) - 1) + b"\n" + data[end:]


SAFETENSORS_EDITS: Mapping[str, Edit] = {
    **{f"header, {name}": _of_header(edit) for name, edit in JSON_EDITS.items()},
    "number replaced": _number(lambda data: LENGTH + int.from_bytes(data[:LENGTH], "little")),
}
NPY_EDITS: Mapping[str, Edit] = {
    "header changed": _npy_header,
    "number replaced": _number(_npy_begin),
}
