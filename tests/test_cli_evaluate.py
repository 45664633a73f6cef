"""`td7 evaluate`: returns, videos, and damaged runs."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import td7
import toys
from commands import TINY, FailingCommand, all_files, printed, run_process
from folders import SMALL, newest, words
from td7.cli.main import main
from td7.errors import InputError

assert toys  # registers the tasks


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seed", "1"], "has no seed 1; allowed: 0, 3"),
        (["--seed", "x"], "seed takes a whole number, given 'x'"),
        (["--episodes", "0"], "--episodes 0 must be at least 1"),
        (["--episodes", "-3"], "--episodes -3 must be at least 1"),
        (["--episodes", "few"], "episodes takes a whole number, given 'few'"),
        (["--video", "film.txt"], "a video file ends in .mp4, .gif, .webp, given 'film.txt'"),
        (["--video", "film"], "a video file ends in .mp4, .gif, .webp, given 'film'"),
        (["--video", "no/where.mp4"], "no is not a folder"),
        (["--video", "film.mp4"], "task 'toys:Point-v0' draws no frames: "),
    ],
)
def test_a_mistake_gets_one_line(
    options: list[str],
    message: str,
    finished_run: Path,
    working_folder: Path,
    failing_command: FailingCommand,
) -> None:
    assert message in failing_command("evaluate", finished_run, *options)
    assert all_files(working_folder) == {}


def test_a_config_without_seeds_gets_one_line(
    run_copy: Path, failing_command: FailingCommand
) -> None:
    config = json.loads((run_copy / "config.json").read_text())
    del config["seeds"]
    (run_copy / "config.json").write_text(json.dumps(config))
    assert f"{run_copy / 'config.json'} is damaged" in failing_command("evaluate", run_copy)


def spoil_text(file: Path) -> None:
    file.write_text(file.read_text()[:-20])


def spoil_json(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def spoil(file: Path) -> None:
        data = json.loads(file.read_text())
        change(data)
        file.write_text(json.dumps(data))

    return spoil


@pytest.mark.parametrize(
    "spoil",
    [
        spoil_text,
        Path.unlink,
        lambda file: file.write_text("[]"),
        lambda file: file.write_text("{}"),
        lambda file: file.write_bytes(b"\xff\xfe"),
        spoil_json(lambda data: data.update(format=99)),
        spoil_json(lambda data: data.update(seeds=5)),
        spoil_json(lambda data: data.update(task=[])),
        spoil_json(lambda data: data.update(task={})),
        spoil_json(lambda data: data.update(network=[])),
        spoil_json(lambda data: data["network"].update(layers=[])),
        spoil_json(lambda data: data["network"]["layers"][0].update(norm="norma")),
        spoil_json(lambda data: data["network"]["layers"][0].update(activation="sigmoid")),
        spoil_json(lambda data: data["network"]["layers"][0].update(width=3)),
        spoil_json(lambda data: data["network"]["layers"][0].update(inputs=["nobody"])),
        spoil_json(lambda data: data.update(exploration="loud")),
    ],
)
def test_a_damaged_policy_json_gets_one_line(
    spoil: Callable[[Path], object], run_copy: Path, failing_command: FailingCommand
) -> None:
    spoil(run_copy / "policy" / "policy.json")
    assert str(run_copy / "policy") in failing_command("evaluate", run_copy)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: file.write_bytes(file.read_bytes()[:-1]),
        lambda file: file.write_bytes(file.read_bytes()[:5]),
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(b"\xff" * 1_000),
        Path.unlink,
        lambda file: (file.unlink(), file.mkdir()),
    ],
)
def test_a_damaged_policy_gets_one_line_and_the_others_still_play(
    spoil: Callable[[Path], object], run_copy: Path, failing_command: FailingCommand
) -> None:
    spoil(run_copy / "policy" / "seed-3.safetensors")
    assert f"{run_copy / 'policy' / 'seed-3.safetensors'} is damaged" in failing_command(
        "evaluate", run_copy
    )
    assert main(["evaluate", str(run_copy), "--seed", "0", "--episodes", "1"]) == 0


def test_a_run_without_a_policy_gets_one_line(
    run_copy: Path, failing_command: FailingCommand
) -> None:
    shutil.rmtree(run_copy / "policy")
    reason = "policy/policy.json is written with a run's first snapshot"
    assert failing_command("evaluate", run_copy) == f"{run_copy} holds no policy: {reason}"


def test_a_fault_closes_the_environment(run_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []
    monkeypatch.setattr(toys.Point, "close", lambda _: closed.append(True))
    monkeypatch.setattr(toys.Point, "step", lambda *_: 1 / 0)
    with pytest.raises(td7.RunError, match=r"seed 0, evaluation at step 30, .* ZeroDivisionError"):
        td7.evaluate(run_copy)
    assert closed == [True]


@pytest.mark.parametrize("content", [b"", b"seed,step\n1,2\n1,2,3\n", b"\xff"])
def test_a_damaged_table_raises_an_input_error(run_copy: Path, content: bytes) -> None:
    (run_copy / "evaluations.csv").write_bytes(content)
    with pytest.raises(InputError, match=r"evaluations\.csv is damaged: "):
        _ = td7.Run(run_copy).evaluations


def test_evaluate_prints_the_returns(
    finished_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = printed(capsys, "evaluate", str(finished_run), "--episodes", "4")
    played = td7.evaluate(finished_run, episodes=4)
    assert list(played.columns) == ["seed", "episode", "return", "length"]
    assert list(played["seed"]) == [0] * 4 + [3] * 4
    for _, returns in played.groupby("seed")["return"]:
        for number in (returns.mean(), returns.min(), returns.max()):
            assert f"{number:,.1f}" in out
    # The checkpoint is still the first, so this is the run's last evaluation again, and more.
    last = td7.Run(finished_run).evaluations.query("step == 30")
    again = played[played["episode"] < 2]
    assert list(again["return"]) == list(last["return"])
    assert list(again["length"]) == list(last["length"])
    only = td7.evaluate(finished_run, seed=3, episodes=4)
    assert list(only["return"]) == list(played[played["seed"] == 3]["return"])


def test_evaluations_without_their_columns_get_one_line(
    run_copy: Path, failing_command: FailingCommand
) -> None:
    (run_copy / "evaluations.csv").write_text("a,b\n1,2\n")
    message = f"{run_copy / 'evaluations.csv'} is damaged: no columns seed and step"
    assert failing_command("evaluate", run_copy) == message


@pytest.mark.parametrize("row", ["0.5,30,0,1,20", "0,1e9,0,1,20", "0,-30,0,1,20"])
def test_evaluations_without_whole_numbers_get_one_line(
    run_copy: Path, row: str, failing_command: FailingCommand
) -> None:
    with (run_copy / "evaluations.csv").open("a") as file:
        file.write(f"{row}\n")
    message = f"{run_copy / 'evaluations.csv'} is damaged: seed and step must be whole numbers"
    assert failing_command("evaluate", run_copy) == f"{message}, 0 or more"


def test_evaluate_repeats_the_last_evaluation(tmp_path: Path) -> None:
    """Even if it was not at the last step."""
    run = td7.train(
        env="toys:Point-v0",
        steps=70,
        evaluate_every=30,
        evaluation_episodes=2,
        set={**SMALL, "random_steps": 20, "early_assessment_episodes": 5},
        quiet=True,
        out=str(tmp_path / "run"),
    )
    last = run.evaluations.query("step == 60")
    assert list(td7.evaluate(run.path, episodes=2)["return"]) == list(last["return"])


@pytest.fixture(scope="module")
def pendulum(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pendulum") / "run"
    options = ["--env", "InvertedPendulum-v5", *TINY, "--out", str(path), "--set", *words(SMALL)]
    assert main(["train", *options]) == 0
    return path


# imageio's reader of mp4 files leaves pipes open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", ["film.mp4", "film.gif"])
def test_a_video_has_a_frame_per_step(name: str, pendulum: Path, tmp_path: Path) -> None:
    imageio = pytest.importorskip("imageio.v2")
    pytest.importorskip("imageio_ffmpeg")
    file = tmp_path / name
    command = ["evaluate", str(pendulum), "--episodes", "1", "--video", str(file)]
    done = run_process(*command, MUJOCO_GL="", DISPLAY="", WAYLAND_DISPLAY="")  # no screen
    if re.search("no frame with MUJOCO_GL=(egl|osmesa)", done.stderr):
        pytest.skip(f"neither EGL nor OSMesa here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    assert f"video: {file}" in done.stdout
    with imageio.get_reader(file) as reader:
        frames = [np.asarray(frame) for frame in reader]
    length = int(td7.evaluate(pendulum, episodes=1)["length"][0])
    assert len(frames) == length
    assert frames[0].shape[:2] == (480, 480)
    assert all(frame.max() > 50 for frame in frames)
    assert newest(pendulum).exists()  # a video does not change the run
