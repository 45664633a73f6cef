"""Reads what W&B writes offline: records of protobuf messages in LevelDB's log format."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HEADER = 7  # bytes, of the file and of every piece of a record: checksum, length, kind
BLOCK = 2**15
FULL, LAST = 1, 4  # kinds of pieces that end a record


class WandbFile(NamedTuple):
    """A run of W&B as one process logged it."""

    run: Any  # wandb's RunRecord
    config: dict[str, Any]
    rows: list[dict[str, float]]  # of the history
    axes: dict[str, str]  # step metric by pattern of metrics
    exit_code: int


def read_wandb(file: Path) -> WandbFile:
    from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]

    records = [Record.FromString(data) for data in _records(file.read_bytes())]
    (run,) = (r.run for r in records if r.HasField("run"))
    return WandbFile(
        run,
        {item.key: json.loads(item.value_json) for item in run.config.update},
        [
            {_name(item): json.loads(item.value_json) for item in r.history.item}
            for r in records
            if r.HasField("history")
        ],
        {r.metric.glob_name: r.metric.step_metric for r in records if r.HasField("metric")},
        next(r.exit.exit_code for r in records if r.HasField("exit")),
    )


def _name(item: Any) -> str:
    return str(item.key or "/".join(item.nested_key))


def _records(data: bytes) -> Iterator[bytes]:
    position, record = HEADER, b""
    while position < len(data):
        if BLOCK - position % BLOCK < HEADER:  # a block ends with zeros
            position += BLOCK - position % BLOCK
            continue
        length = int.from_bytes(data[position + 4 : position + 6], "little")
        kind, begin = data[position + 6], position + HEADER
        record += data[begin : begin + length]
        position = begin + length
        if kind in (FULL, LAST):
            yield record
            record = b""
