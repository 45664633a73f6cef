"""Filming: the frames of an episode in a file, or one line and the file that was there before."""

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import td7
import toys
from folders import SMALL, change_policy
from td7.cli.main import main
from td7.rollouts.registration import make
from td7.runs.video import follow_body
from td7.types import Task

assert toys  # registers the tasks
imageio = pytest.importorskip("imageio.v2")
pytest.importorskip("imageio_ffmpeg")
Image = pytest.importorskip("PIL.Image")
NAMES = ("film.mp4", "film.gif")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = td7.train(
        env="toys:Drawn-v0",
        steps=30,
        evaluate_every=30,
        evaluation_episodes=1,
        set=dict(SMALL),
        quiet=True,
        out=str(tmp_path_factory.mktemp("finished") / "run"),
    )
    return run.path


Drawing = Callable[..., Path]


@pytest.fixture
def drawing(finished: Path, tmp_path: Path) -> Drawing:
    """The run, as if its task had these options."""

    def drawing(id: str = "toys:Drawn-v0", **kwargs: Any) -> Path:
        run = tmp_path / "run"
        shutil.copytree(finished, run)
        task = {"id": id, "kwargs": kwargs}
        change_policy(run / "policy", lambda data: data["task"].update(task=task))
        return run

    return drawing


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "films"
    path.mkdir()
    return path


def film(run: Path, file: Path) -> list[str]:
    return ["evaluate", str(run), "--episodes", "1", "--video", str(file), "--trust"]


def frames(file: Path) -> list[Any]:
    with imageio.get_reader(file) as reader:
        return [np.asarray(frame)[..., :3] for frame in reader]


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# imageio's reader of mp4 files leaves pipes open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [(48, 64), (65, 97), (1, 1)])
def test_frames_of_any_size(
    size: tuple[int, int],
    name: str,
    drawing: Drawing,
    folder: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (folder / name).write_bytes(b"an older one")
    run = drawing(size=size)
    assert main(film(run, folder / name)) == 0
    assert capfd.readouterr().err == "filming 1 episode of toys:Drawn-v0 …\n"
    assert list(files(folder)) == [name]
    filmed = frames(folder / name)
    assert len(filmed) == int(td7.evaluate(run, episodes=1)["length"][0])
    for i, frame in enumerate(filmed):
        even = tuple(side + side % 2 for side in size)
        assert frame.shape[:2] == (even if name == "film.mp4" else size)
        np.testing.assert_allclose(frame, 60 + 5 * i, atol=6)  # the added row and column, too


@pytest.mark.parametrize(
    ("draws", "name", "told"),
    [
        ("none", "film.mp4", "toys:Drawn-v0: its render() returned no frame [height, width, 3]"),
        ("none", "film.gif", "toys:Drawn-v0: its render() returned no frame [height, width, 3]"),
        (
            "raise",
            "film.mp4",
            "toys:Drawn-v0: its render() raised ValueError: the pencil is broken",
        ),
        ("small", "film.mp4", "ffmpeg cannot continue the video: All images "),
    ],
)
def test_a_fault_while_filming_spares_the_older_film(
    draws: str, name: str, told: str, drawing: Drawing, folder: Path
) -> None:
    (folder / name).write_bytes(b"an older one")
    words = [sys.executable, "-m", "td7", *film(drawing(draws=draws), folder / name)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    start, line = done.stderr.splitlines()
    assert (done.returncode, start) == (1, "filming 1 episode of toys:Drawn-v0 …")
    assert line.startswith("td7: ")
    assert told in line
    assert files(folder) == {name: b"an older one"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("signum", "status", "told"),
    [(signal.SIGTERM, 143, ""), (signal.SIGINT, 130, "td7: interrupted\n")],
)
def test_a_signal_while_filming_spares_the_older_film(
    signum: int, status: int, told: str, name: str, drawing: Drawing, folder: Path
) -> None:
    (folder / name).write_bytes(b"an older one")
    # Where tests run in the background, SIGINT is ignored, and children inherit it.
    script = "import signal as s, sys, td7.cli.main; s.signal(s.SIGINT, s.default_int_handler); "
    words = [sys.executable, "-c", f"{script} sys.exit(td7.cli.main.main())"]
    words += film(drawing(draws="slow"), folder / name)
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr
            assert process.stderr.readline().startswith("filming 1 episode")
            assert process.stderr.readline() == "drawing\n"
            process.send_signal(signum)
            assert process.wait(timeout=30) == status
            assert process.stderr.read() == told
        finally:
            process.kill()
    assert files(folder) == {name: b"an older one"}


@pytest.mark.skipif(sys.platform == "win32", reason="no limits there")
@pytest.mark.parametrize("name", NAMES)
def test_a_full_disk_spares_the_older_film(name: str, drawing: Drawing, folder: Path) -> None:
    (folder / name).write_bytes(b"an older one")
    limited = "import resource as r, sys, td7.cli.main; r.setrlimit(r.RLIMIT_FSIZE, (400, 400)); "
    words = [sys.executable, "-c", f"{limited} sys.exit(td7.cli.main.main())"]
    words += film(drawing(), folder / name)
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    _, line = done.stderr.splitlines()
    told = "ffmpeg did not finish the video" if name == "film.mp4" else os.strerror(errno.EFBIG)
    assert told in line
    assert files(folder) == {name: b"an older one"}


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="no folder that even root cannot write to")
@pytest.mark.parametrize("name", NAMES)
def test_a_place_that_cannot_be_written(name: str, finished: Path) -> None:
    words = [sys.executable, "-m", "td7", *film(finished, Path("/proc") / name)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"td7: /proc/{name} cannot be written: {os.strerror(2)}\n"


def test_a_folder_is_no_film(
    finished: Path, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "film.mp4").mkdir()
    assert main(film(finished, folder / "film.mp4")) == 2
    assert capfd.readouterr().err == f"td7: {folder}/film.mp4 is a folder, not a video file\n"


def test_a_task_without_frames(
    drawing: Drawing, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(film(drawing("toys:Point-v0"), folder / "film.mp4")) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("td7: task 'toys:Point-v0' draws no frames: ")
    assert line.endswith("got an unexpected keyword argument 'render_mode'")
    assert files(folder) == {}


@pytest.mark.parametrize("films", [True, False])
def test_a_task_that_raises_is_one_line(
    films: bool,
    drawing: Drawing,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("no\nplant")

    run = drawing()
    monkeypatch.setattr(toys.Drawn, "step", broken)
    words = film(run, folder / "film.mp4") if films else ["evaluate", str(run), "--episodes", "1"]
    assert main(words) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("td7: seed 0, evaluation at step ")
    assert line.endswith(", episode 0, step 1: the environment raised ZeroDivisionError: no plant")
    assert files(folder) == {}


def camera(env: str, **kwargs: Any) -> int:
    with closing(make(Task(env, kwargs), render=True)) as made:
        follow_body(made.env)
        camera_id: int = made.env.unwrapped.mujoco_renderer.camera_id  # type: ignore[attr-defined]  # of MuJoCo's tasks
    return camera_id


def test_the_camera_follows_a_robot_unless_the_task_has_another() -> None:
    still = -1  # MuJoCo's free camera
    assert camera("HalfCheetah-v4") == 0  # "track", the only one of the model
    assert camera("HalfCheetah-v4", camera_id=-1) == still
    assert camera("InvertedPendulum-v5") == still  # its model has none


@pytest.mark.parametrize("name", ["film.gif", "film.webp"])
def test_a_cut_has_frames_of_its_width_and_ends_after_its_seconds(
    name: str, drawing: Drawing, folder: Path
) -> None:
    run = drawing(size=(48, 64))
    whole = int(td7.evaluate(run, episodes=1)["length"][0])
    fps = toys.Drawn.metadata["render_fps"]
    td7.evaluate(
        run, episodes=1, video=str(folder / name), video_seconds=3 / fps, video_width=32, trust=True
    )
    assert whole > 3
    with Image.open(folder / name) as film:
        assert (film.size, film.n_frames) == ((32, 24), 3)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--video-width", "32"], "--video-seconds and --video-width have no effect without"),
        (["--video", "a.gif", "--video-width", "3"], "--video-width 3 must be at least 16"),
        (["--video", "a.gif", "--video-seconds", "0"], "--video-seconds 0.0 must be above 0"),
        (["--video", "a.avi"], "a video file ends in .mp4, .gif, .webp, given 'a.avi'"),
    ],
)
def test_a_wrong_cut_is_one_line(
    words: list[str], message: str, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(finished), "--trust", *words]) == 2
    assert message in capsys.readouterr().err
    assert not Path("a.gif").exists()
