"""A run folder with the policy of one member alone, to keep or to share.

Nothing varies in it: config.json has the member's hyperparameters and its seed. It also holds
policy/ and the member's evaluations, so that `td7 evaluate` and `td7.load` take
it like the run itself; it has no snapshot to resume from.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from td7.errors import InputError
from td7.files import make_folder, write
from td7.runs.folder import check_new, write_config
from td7.runs.members import Members
from td7.runs.policies import Policy, policy_folder
from td7.runs.policy_files import read_description, weights_file, write_policies
from td7.runs.record import RunRecord, run_and_step
from td7.runs.trust import is_signed

VARYING = ("varied", "numbers", "padding")  # fields of config.json that are empty here
EXPORTED_FROM = "exported_from"  # a field of config.json: the run's name


def check_not_exported(record: RunRecord) -> None:
    """Raise an InputError if the folder is such a one: to resume it would train it anew."""
    if EXPORTED_FROM in record.data:
        raise InputError(
            f"{record.folder} holds a policy exported from the run {record.data[EXPORTED_FROM]!r}, "
            "and no snapshot; resume that run"
        )


def write_folder(path: Path, policy: Policy, member: Members, out: Path | None) -> Path:
    """Write the policy of a run folder, or of its policies/STEP, to a new folder."""
    run, step = run_and_step(path)
    record = RunRecord.read(run)
    (id,), (seed,) = member.ids, member.seeds
    folder = out or run.with_name(f"{run.name}-{member.kind}-{id}")
    check_new(folder)
    make_folder(folder)
    weights = weights_file(policy_folder(path), id, member.kind).read_bytes()
    write_policies(folder / "policy", _description(path, policy, seed), {seed: weights})
    _copy_evaluations(run, folder, member, step)
    own = next((one for one in record.configurations() if id in one.members.ids), record)
    data = {**record.data, "hyperparameters": own.hyperparameters, "seeds": [seed]}
    nothing = {name: type(data[name])() for name in VARYING if name in data}
    data |= {**nothing, EXPORTED_FROM: run.absolute().name}
    write_config(folder, data, signed=is_signed(run))
    return folder


def _description(path: Path, policy: Policy, seed: int) -> dict[str, Any]:
    """Its policy.json, without the checksums, which are the target's own."""
    data = {
        **read_description(policy_folder(path)),
        **{"seeds": [seed], "steps": policy.steps, "exploration": asdict(policy.exploration)},
    }
    return {name: v for name, v in data.items() if name not in ("weights", "before", *VARYING)}


def _copy_evaluations(run: Path, folder: Path, member: Members, step: int | None) -> None:
    """Copy the member's rows, up to the policy's step; nothing varies in the copy."""
    file = run / "evaluations.csv"
    if not file.exists():
        return
    header, *lines = file.read_text(errors="replace").splitlines() or [""]
    (id,), (seed,), more = member.ids, member.seeds, len(member.columns)
    kept = [words for words in map(_words, lines) if _is_of(words, id, step)]
    rows = [["seed", *_words(header)[1:]], *([str(seed), *words[1:]] for words in kept)]
    text = "".join(",".join(row[: len(row) - more]) + "\n" for row in rows)
    write(folder / "evaluations.csv", text.encode())


def _words(line: str) -> list[str]:
    return line.split(",")


def _is_of(words: Sequence[str], id: int, step: int | None) -> bool:
    """Whether a row's first two words are the id and a step that is not later."""
    if len(words) < 2 or words[0] != str(id) or not words[1].isdecimal():
        return False
    return step is None or int(words[1]) <= step
