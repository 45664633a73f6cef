"""Ways to spoil what a file holds: any file's bytes, the values of JSON, the rows of CSV."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

Random = np.random.Generator
Value = TypeVar("Value")
Edit = Callable[[bytes, Random], bytes]

DEPTH = 100_000  # of nested JSON, more than Python's parser can recurse
LONG = 100_000  # characters


def one_of(values: Sequence[Value], random: Random) -> Value:
    return values[int(random.integers(len(values)))]


# -- bytes ---------------------------------------------------------------------------------------


def _flip_bit(data: bytes, random: Random) -> bytes:
    return _with_byte(data, lambda byte: byte ^ (1 << int(random.integers(8))), random)


def _replace_byte(data: bytes, random: Random) -> bytes:
    return _with_byte(data, lambda _: int(random.integers(256)), random)


def _with_byte(data: bytes, change: Callable[[int], int], random: Random) -> bytes:
    if not data:
        return b"\0"
    i = int(random.integers(len(data)))
    return data[:i] + bytes([change(data[i])]) + data[i + 1 :]


def _range(data: bytes, random: Random) -> tuple[int, int]:
    begin = int(random.integers(len(data) + 1))
    return begin, begin + int(random.integers(1, 512))


def _zero(data: bytes, random: Random) -> bytes:
    begin, end = _range(data, random)
    return data[:begin] + bytes(len(data[begin:end])) + data[end:]


def _scramble(data: bytes, random: Random) -> bytes:
    begin, end = _range(data, random)
    return data[:begin] + random.bytes(len(data[begin:end])) + data[end:]


def _cut_out(data: bytes, random: Random) -> bytes:
    begin, end = _range(data, random)
    return data[:begin] + data[end:]


def _repeat(data: bytes, random: Random) -> bytes:
    begin, end = _range(data, random)
    return data[:end] + data[begin:end] + data[end:]


def _truncate(data: bytes, random: Random) -> bytes:
    return data[: int(random.integers(len(data) + 1))]


def _append(data: bytes, random: Random) -> bytes:
    return data + random.bytes(int(random.integers(1, 64)))


BYTE_EDITS: Mapping[str, Edit] = {
    "bit flipped": _flip_bit,
    "byte replaced": _replace_byte,
    "range zeroed": _zero,
    "range scrambled": _scramble,
    "range cut out": _cut_out,
    "range repeated": _repeat,
    "truncated": _truncate,
    "junk appended": _append,
    "emptied": lambda _data, _random: b"",
}


# -- JSON ----------------------------------------------------------------------------------------

ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, [], {}, [None], {"a": None}, "", "x", "../../x", "x" * LONG, "\0\n\ud800"),
    *(0, 1, -1, 2, 7, 1.5, -0.5, 10**9, -(10**9), 10**18, 2**63, 10**400, 1e308, -1e308, 1e-320),
    *(float("nan"), float("inf"), [1, [2]], ["a", "b"], "1", "1e3", "toys:Point-v0", "²"),
)
DEEP = "@deep@"  # stands for a value that the writer cannot nest either


def _nodes(value: Any) -> list[tuple[Any, Any]]:
    """Every place of a JSON value, as its container and its key or index."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    places = []
    for key in keys:
        places.append((value, key))
        if isinstance(value[key], dict | list):
            places += _nodes(value[key])
    return places


def _json_edit(change: Callable[[Any, Any, Random], None]) -> Edit:
    """An edit of one place of a JSON document: `change(container, key, random)`."""

    def edit(data: bytes, random: Random) -> bytes:
        document = [json.loads(data)]  # in a list, so that the root is a place as well
        change(*one_of(_nodes(document), random), random)
        text = json.dumps(document[0], indent=2) if document else ""
        return text.replace(json.dumps(DEEP), "[" * DEPTH + "]" * DEPTH).encode()

    return edit


def _set_odd(container: Any, key: Any, random: Random) -> None:
    container[key] = one_of(ODD_VALUES, random)


def _nudge(container: Any, key: Any, random: Random) -> None:
    """Change a value to a similar one."""
    value = container[key]
    if isinstance(value, bool) or value is None:
        container[key] = not value
    elif isinstance(value, int | float):
        container[key] = one_of([value + 1, value - 1, 2 * value, -value, value + 0.5], random)
    elif isinstance(value, str):
        container[key] = one_of([value + "x", value[:-1], value.upper(), value[::-1]], random)
    elif isinstance(value, list):
        container[key] = one_of([value[:-1], value + value, value[::-1], [value]], random)
    else:
        container[key] = {**value, "x": 1}


def _remove(container: Any, key: Any, random: Random) -> None:
    del random, container[key]


def _rename(container: Any, key: Any, random: Random) -> None:
    value = container.pop(key)
    if isinstance(container, dict):
        container[one_of([f"{key}x", f"{key}"[:-1], "", "__class__"], random)] = value


def _exchange(container: Any, key: Any, random: Random) -> None:
    """Exchange two values next to each other."""
    keys = list(container) if isinstance(container, dict) else list(range(len(container)))
    other = one_of(keys, random)
    container[key], container[other] = container[other], container[key]


def _nest(container: Any, key: Any, random: Random) -> None:
    del random
    container[key] = DEEP


JSON_EDITS: Mapping[str, Edit] = {
    "odd value": _json_edit(_set_odd),
    "similar value": _json_edit(_nudge),
    "key removed": _json_edit(_remove),
    "key renamed": _json_edit(_rename),
    "values exchanged": _json_edit(_exchange),
    "nested deeply": _json_edit(_nest),
}


# -- CSV -----------------------------------------------------------------------------------------

ODD_FIELDS = (
    *(b"", b"x", b"nan", b"inf", b"-1", b"1.5", b"1e308", b"-1e400", b"9" * 5000, b"\0", b"\xff"),
    *(b'"', b"'1", b" 7", b"0x10", b"1_000", "²".encode(), "٣".encode(), b"=1+1", b"1,2,3"),
)


def _row_edit(change: Callable[[list[bytes], int, Random], None]) -> Edit:
    """An edit of the file's lines: `change(lines, line, random)`."""

    def edit(data: bytes, random: Random) -> bytes:
        lines = data.splitlines(keepends=True) or [b"\n"]
        change(lines, int(random.integers(len(lines))), random)
        return b"".join(lines)

    return edit


def _field_edit(change: Callable[[list[bytes], int, Random], None]) -> Edit:
    """An edit of the fields of one line: `change(fields, field, random)`."""

    def of_row(lines: list[bytes], i: int, random: Random) -> None:
        fields = lines[i].rstrip(b"\n").split(b",")
        change(fields, int(random.integers(len(fields))), random)
        lines[i] = b",".join(fields) + b"\n"

    return _row_edit(of_row)


def _set_field(fields: list[bytes], i: int, random: Random) -> None:
    fields[i] = one_of(ODD_FIELDS, random)


def _change_digit(fields: list[bytes], i: int, random: Random) -> None:
    digits = [k for k, byte in enumerate(fields[i]) if byte in b"0123456789"]
    if digits:
        k = one_of(digits, random)
        fields[i] = fields[i][:k] + b"%d" % random.integers(10) + fields[i][k + 1 :]


def _remove_field(fields: list[bytes], i: int, random: Random) -> None:
    del random, fields[i]


def _repeat_field(fields: list[bytes], i: int, random: Random) -> None:
    del random
    fields.insert(i, fields[i])


def _remove_row(lines: list[bytes], i: int, random: Random) -> None:
    del random, lines[i]


def _repeat_row(lines: list[bytes], i: int, random: Random) -> None:
    lines.insert(int(random.integers(len(lines) + 1)), lines[i])


def _exchange_rows(lines: list[bytes], i: int, random: Random) -> None:
    k = int(random.integers(len(lines)))
    lines[i], lines[k] = lines[k], lines[i]


def _insert_row(lines: list[bytes], i: int, random: Random) -> None:
    lines.insert(i, one_of([b"\n", b",,,\n", b"# x\n", b"0,1\n", b"\r\n", b"1," * LONG], random))


CSV_EDITS: Mapping[str, Edit] = {
    "field replaced": _field_edit(_set_field),
    "digit changed": _field_edit(_change_digit),
    "field removed": _field_edit(_remove_field),
    "field repeated": _field_edit(_repeat_field),
    "row removed": _row_edit(_remove_row),
    "row repeated": _row_edit(_repeat_row),
    "rows exchanged": _row_edit(_exchange_rows),
    "row inserted": _row_edit(_insert_row),
}
