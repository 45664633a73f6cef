"""`td7 bench`: what it measures, keeps and refuses."""

import dataclasses
import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

import toys
from commands import FailingCommand, all_files
from td7.bench.run import machine
from td7.bench.updates import Result, measure
from td7.bench.whole_runs import WholeRun, whole_run
from td7.cli.main import main
from td7.errors import Stopped

assert toys  # registers the tasks


def test_bench_measures_updates_and_whole_runs(
    working_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bench", "--env", "toys:Point-v0", "--members", "1,2", "--rows", "300", "--seconds"]
    words += ["0.01", "--engines", "eager", "--steps", "30", "--device", "cpu"]
    assert main([*words, "--algorithms", "td7,td3"]) == 0
    output = capsys.readouterr().out
    (file,) = (working_folder / "results" / "bench").iterdir()
    assert str(file.relative_to(working_folder)) in output
    data = json.loads(file.read_text())
    measured = [(r["algorithm"], r["engine"], r["seeds"]) for r in data["results"]]
    assert measured == [
        *(("td7", "plain", 1), ("td7", "eager", 1), ("td7", "eager", 2)),
        *(("td3", "stable-baselines3", 1), ("td3", "eager", 1), ("td3", "eager", 2)),
    ]
    assert {r["env"] for r in data["results"]} == {"toys:Point-v0"}
    for r in data["results"]:
        assert 0 < r["seeds"] * 1e3 / r["milliseconds"] == r["seed_updates_per_second"]
        # The products alone never take longer than a whole update.
        assert r["floor_milliseconds"] > 0
    plain = data["results"][0]
    assert 0 < plain["floor_milliseconds"] / plain["milliseconds"] < 1.2
    names = ("algorithm", "engine", "seeds", "steps", "workers")
    runs = [tuple(r[name] for name in names) for r in data["end_to_end"]]
    assert runs == [(name, "eager", seeds, 30, 0) for name in ("td7", "td3") for seeds in (1, 2)]
    for r in data["end_to_end"]:
        assert r["seed_steps_per_second"] == 30 * r["seeds"] / r["seconds"]
        assert r["steady"] > 0
    assert data["machine"]["cores"]


def test_a_stopped_bench_keeps_its_results(
    working_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results: list[WholeRun] = []

    def stopped_in_the_second(*arguments: Any) -> WholeRun:
        if results:
            raise Stopped(signal.SIGTERM, working_folder / "run")
        results.append(whole_run(*arguments))
        return results[-1]

    monkeypatch.setattr("td7.bench.run.whole_run", stopped_in_the_second)
    words = ["bench", "--env", "toys:Point-v0", "--members", "1,2", "--rows", "300", "--seconds"]
    words += ["0.01", "--engines", "eager", "--steps", "30", "--device", "cpu"]
    assert main(words) == 128 + signal.SIGTERM
    (file,) = (working_folder / "results" / "bench").iterdir()
    assert (
        f"td7: stopped by SIGTERM; the results so far are in {file.relative_to(working_folder)}"
        in (capsys.readouterr().err)
    )
    data = json.loads(file.read_text())
    assert [r["seeds"] for r in data["results"]] == [1, 1, 2]
    assert [r["seeds"] for r in data["end_to_end"]] == [1]


def test_bench_measures_offline_algorithms(
    working_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are compared with d3rlpy, which has no X-QL. One update per round, as CQL's are slow."""
    monkeypatch.setattr("td7.bench.updates.ROUND", 1)
    threads = torch.get_num_threads()
    words = ["bench", "--env", "toys:Point-v0", "--members", "1", "--rows", "300", "--seconds"]
    words += ["0.01", "--engines", "eager", "--device", "cpu"]
    assert main([*words, "--algorithms", "td3+bc,iql,cql,xql"]) == 0
    assert "Gym has been unmaintained" not in capsys.readouterr().err
    (file,) = (working_folder / "results" / "bench").iterdir()
    data = json.loads(file.read_text())
    measured = [(r["algorithm"], r["engine"], r["is_reference"]) for r in data["results"]]
    assert measured == [
        *(("td3+bc", "d3rlpy", True), ("td3+bc", "eager", False)),
        *(("iql", "d3rlpy", True), ("iql", "eager", False)),
        *(("cql", "d3rlpy", True), ("cql", "eager", False)),
        ("xql", "eager", False),
    ]
    for r in data["results"]:
        assert 0 < r["seed_updates_per_second"] == 1e3 / r["milliseconds"]
        assert r["floor_milliseconds"] > 0
    assert data["machine"]["torch_threads"] == torch.get_num_threads() == threads


def test_bench_measures_on_each_device(
    working_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second device is simulated: both are the CPU."""
    simulated = {"engines": ["eager"], "device": "cpu"}

    def measured(*arguments: Any, device: str, **options: Any) -> list[Result]:
        results = measure(*arguments, **{**options, **simulated})
        return [dataclasses.replace(result, device=device) for result in results]

    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("td7.bench.updates.measure", measured)
    monkeypatch.setattr("td7.bench.run.device_bytes", lambda _: None)  # nobody knows
    monkeypatch.setattr("td7.bench.run.machine", lambda devices: machine(["cpu"]) | {"of": devices})
    words = ["bench", "--env", "toys:Point-v0", "--members", "1", "--rows", "300", "--seconds"]
    assert main([*words, "0.01", "--device", "cpu,cuda"]) == 0
    (file,) = (working_folder / "results" / "bench").iterdir()
    assert file.name.startswith("cpu-cuda-")
    data = json.loads(file.read_text())
    assert data["machine"]["of"] == ["cpu", "cuda"]
    measured_on = [(r["device"], r["engine"], r["is_reference"]) for r in data["results"]]
    pair = (("plain", True), ("eager", False))
    assert measured_on == [(device, *who) for device in ("cpu", "cuda") for who in pair]
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if " td7 " in line]
    assert [row[3] for row in rows] == ["cpu", "cpu", "cuda", "cuda"]
    # Relative to the plain program on the same device.
    rates = [r["seed_updates_per_second"] for r in data["results"]]
    ratios = [float(row[-8]) for row in rows]
    assert ratios == [1.0, pytest.approx(rates[1] / rates[0], abs=0.006), 1.0, ratios[3]]
    assert ratios[3] == pytest.approx(rates[3] / rates[2], abs=0.006)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--env", "Nope-v0"], "Nope"),
        (["--algorithms", "td8"], "did you mean 'td7'"),
        (["--engines", "egaer"], "did you mean 'eager'"),
        (["--engines", "samplin"], "did you mean 'sampling'"),
        (["--members", "0"], "--members 0 must be at least 1"),
        (["--seeds", "10"], "--seeds: give numbers of seeds, as --members 1,10"),
        (["--device", "cpu,gpu"], "unknown device 'gpu'; allowed: auto, cpu, cuda"),
        (["--device", "cpu,cpu"], "device cpu is given twice"),
        (["--device", "cpu", "--engines", "graph"], "engine graph needs a CUDA device"),
        (["--seconds", "soon"], "--seconds takes a number"),
        (["--seconds", "-1"], "--seconds -1.0 must be above 0"),
        (["--out", "/proc/x"], "cannot write to /proc/x: "),
        (["--steps", "30", "--algorithms", "td7,cql"], "--steps 30: cql learns from a dataset"),
    ],
)
def test_a_mistake_gets_one_line_before_anything_is_measured(
    working_folder: Path, failing_command: FailingCommand, words: list[str], message: str
) -> None:
    assert message in failing_command("bench", *words)
    assert all_files(working_folder) == {}
