"""Damage to policies is noticed, and a kill at any moment leaves policies that load."""

import itertools
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import td7
from commands import FailingCommand
from folders import change_policy
from td7.cli.main import main
from td7.errors import InputError
from td7.files import read_sealed, write, write_sealed
from td7.runs.members import Members
from td7.runs.policies import load, save


@pytest.mark.parametrize("name", ["policy.json", "seed-3.safetensors"])
def test_no_changed_byte_goes_unnoticed(name: str, run_copy: Path) -> None:
    file, random = run_copy / "policy" / name, np.random.default_rng(0)
    content = file.read_bytes()
    expected = td7.load(run_copy, 3)
    for place in random.integers(len(content), size=150):
        changed = bytearray(content)
        changed[place] ^= 1 << int(random.integers(8))
        file.write_bytes(changed)
        with suppress(InputError):
            policy = td7.load(run_copy, 3)
            # A space became another character that JSON ignores.
            assert name == "policy.json"
            assert json.loads(changed) == json.loads(content)
            assert np.array_equal(policy.flat, expected.flat)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda d: d["network"]["layers"][0].update(width=1.5), "width"),
        (lambda d: d["network"]["layers"][0].update(width=True), "width"),
        (lambda d: d["network"]["layers"][0].update(width=-16), "width"),
        (lambda d: d["network"]["layers"][0].update(width=10**100), "width"),
        (lambda d: d["network"]["layers"][0].update(width=9_000_000), "numbers"),
        (lambda d: d["network"].update(heads=0), "heads"),
        (lambda d: d["network"].update(layers=None), "damaged"),
        (lambda d: d["network"].update(layers=[]), "damaged"),
        (lambda d: d["network"]["inputs"].clear(), "damaged"),
        (lambda d: d["task"].update(state_shape=[3]), "sizes"),
        (lambda d: d["task"].update(state_shape=[2.0]), "state_shape"),
        (lambda d: d["task"].update(action_low=[None, 0]), "damaged"),
        (lambda d: d["task"].update(action_low=[float("nan"), 0]), "bound"),
        (lambda d: d["task"].update(action_low=[0]), "bounds"),
        (lambda d: d["task"].update(action_dtype="object"), "action_dtype"),
        (lambda d: d["task"].update(task=None), "task"),
        (lambda d: d.update(seeds=[[]]), "seeds"),
        (lambda d: d.update(seeds={}), "seeds"),
        (lambda d: d.update(exploration={"kind": [], "scale": 0}), "damaged"),
        (lambda d: d.update(before=3), "before"),
        (lambda d: d.update(before={"seed-0.safetensors": 3}), "before"),
    ],
)
def test_fields_with_right_checksums_are_checked(
    change: Callable[[dict[str, Any]], object],
    reason: str,
    run_copy: Path,
    failing_command: FailingCommand,
) -> None:
    change_policy(run_copy / "policy", change)
    message = failing_command("evaluate", run_copy, "--seed", "0")
    assert str(run_copy / "policy") in message
    assert reason in message


def without_checksums(file: Path) -> None:
    description = json.loads(file.read_text())
    del description["weights"], description["sha256"]
    file.write_text(json.dumps(description))


class Killed(BaseException):
    """Ends a process at once."""


@pytest.mark.parametrize("has_checksums", [True, False])
def test_a_kill_at_any_write_leaves_policies_that_load(
    has_checksums: bool, run_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run_copy / "policy"
    old = {seed: load(folder, seed) for seed in (0, 3)}
    new = {seed: 2 * policy.flat for seed, policy in old.items()}
    record = {"exploration": asdict(old[0].exploration), "steps": [70, 80]}
    old_record, old_flat = {**record, "steps": [30, 30]}, {s: p.flat for s, p in old.items()}
    spec, network = old[0].spec, old[0].network

    def replace_policies(writes: int) -> None:
        """Put the old policies there, and the new ones until so many files are written."""
        left = itertools.count(writes, -1)

        def write_or_die(path: Path, content: Any) -> Any:
            if next(left) <= 0:
                raise Killed
            return write(path, content)

        save(folder, spec, network, old_flat, old_record)
        if not has_checksums:
            without_checksums(folder / "policy.json")
        with monkeypatch.context() as patch:
            patch.setattr("td7.files.write", write_or_die)
            patch.setattr("td7.runs.policy_files.write", write_or_die)
            save(folder, spec, network, new, record)

    for writes in range(4):
        with pytest.raises(Killed):
            replace_policies(writes)
        for seed, steps in ((0, 70), (3, 80)):
            policy = load(folder, seed)
            is_new = writes >= (2 if seed == 0 else 3)
            assert np.array_equal(policy.flat, new[seed] if is_new else old[seed].flat)
            assert policy.steps == (steps if is_new else 30)
    replace_policies(4)
    final = json.loads((folder / "policy.json").read_text())
    assert set(final["weights"]) == {"seed-0.safetensors", "seed-3.safetensors"}
    assert "before" not in final


def test_what_an_earlier_description_says_of_other_files_is_not_kept(run_copy: Path) -> None:
    policy = load(run_copy, 3)
    description = read_sealed(run_copy / "policy" / "policy.json")
    description["weights"]["seed-7.safetensors"] = "0" * 64
    write_sealed(run_copy / "policy" / "policy.json", description)
    record = {"exploration": asdict(policy.exploration), "steps": 70}
    save(
        run_copy / "policy", policy.spec, policy.network, {3: policy.flat}, record, Members((0, 3))
    )
    final = json.loads((run_copy / "policy" / "policy.json").read_text())
    assert set(final["weights"]) == {"seed-0.safetensors", "seed-3.safetensors"}


def test_older_policies_load_with_a_note(
    run_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    without_checksums(run_copy / "policy" / "policy.json")
    assert not td7.load(run_copy, 0).has_checksum
    assert capsys.readouterr().err == ""
    assert main(["evaluate", str(run_copy), "--episodes", "1"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{run_copy} was saved before policies had checksums")
