"""A run folder with the policy of one seed alone, to keep or to share.

It holds config.json, policy/ and the seed's evaluations, so that `td7 evaluate` and `td7.load` take
it like the run itself; it has no snapshot to resume from.
"""

from collections.abc import Sequence
from pathlib import Path

from td7.errors import InputError
from td7.files import make_folder, write
from td7.runs.folder import check_new, write_config
from td7.runs.policies import Policy, policy_folder
from td7.runs.policy_files import read_description, weights_file, write_policies
from td7.runs.record import RunRecord, run_and_step
from td7.runs.trust import is_signed

EXPORTED_FROM = "exported_from"  # a field of config.json: the run's name


def check_not_exported(record: RunRecord) -> None:
    """Raise an InputError if the folder is such a one: to resume it would train it anew."""
    if EXPORTED_FROM in record.data:
        raise InputError(
            f"{record.folder} holds a policy exported from the run {record.data[EXPORTED_FROM]!r}, "
            "and no snapshot; resume that run"
        )


def write_folder(path: Path, policy: Policy, seed: int, out: Path | None) -> Path:
    """Write the policy of a run folder, or of its policies/STEP, to a new folder."""
    run, step = run_and_step(path)
    record = RunRecord.read(run)
    folder = out or run.with_name(f"{run.name}-seed-{seed}")
    check_new(folder)
    make_folder(folder)
    source = policy_folder(path)
    description = {**read_description(source), "seeds": [seed], "steps": policy.steps}
    description.pop("weights", None)  # with the checksums, which are the target's own
    write_policies(folder / "policy", description, {seed: weights_file(source, seed).read_bytes()})
    _copy_evaluations(run, folder, seed, step)
    data = {**record.data, "seeds": [seed], EXPORTED_FROM: run.absolute().name}
    write_config(folder, data, signed=is_signed(run))
    return folder


def _copy_evaluations(run: Path, folder: Path, seed: int, step: int | None) -> None:
    """Copy the seed's rows, up to the policy's step."""
    file = run / "evaluations.csv"
    if not file.exists():
        return
    header, *lines = file.read_text(errors="replace").splitlines() or [""]
    kept = [line for line in lines if _is_of(line.split(","), seed, step)]
    write(folder / "evaluations.csv", "".join(f"{line}\n" for line in (header, *kept)).encode())


def _is_of(words: Sequence[str], seed: int, step: int | None) -> bool:
    """Whether a row's first two words are the seed and a step that is not later."""
    if len(words) < 2 or words[0] != str(seed) or not words[1].isdecimal():
        return False
    return step is None or int(words[1]) <= step
