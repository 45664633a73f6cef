"""A policy's episode as a video file."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from td7.errors import InputError, RunError, one_line
from td7.rollouts.environment import environment_faults
from td7.rollouts.evaluation import evaluate
from td7.rollouts.registration import make
from td7.runs.policies import Policy

FORMATS = (".mp4", ".gif")


def record(
    policy: Policy, file: Path, *, seed: int, step: int, say: Callable[[str], None] | None = None
) -> None:
    """Films evaluation episode 0 of (seed, step)."""
    if file.suffix not in FORMATS:
        raise InputError(f"a video file ends in {' or '.join(FORMATS)}, given {file.name!r}")
    if not file.parent.is_dir():
        raise InputError(f"{file.parent} is not a folder")
    if file.is_dir():
        raise InputError(f"{file} is a folder, not a video file")
    try:
        import imageio_ffmpeg  # noqa: F401  # asked for, not used
        import PIL  # noqa: F401  # likewise
    except ImportError as error:
        raise InputError("videos need the extra `video`: pip install 'td7[video]'") from error
    task = policy.spec.task
    with _stoppable(), _aside(file) as aside, closing(make(task, render=True)) as environment:
        if say is not None:
            say(f"filming 1 episode of {task.id} …")
        fps = environment.env.metadata.get("render_fps") or 30
        with {".mp4": _mp4, ".gif": _gif}[file.suffix](aside, fps) as write:
            film = evaluate(
                environment,
                policy.actor,
                seed=seed,
                step=step,
                episodes=1,
                on_frame=lambda: write(environment.render()),
            )
            with environment_faults(f"seed {seed}, filming"):
                list(film)


Frame = NDArray[np.uint8]


@contextmanager
def _mp4(file: Path, fps: float) -> Iterator[Callable[[Frame], None]]:
    """Writes frames as they come; afterwards the file is whole."""
    import imageio.v2 as imageio
    from imageio_ffmpeg import count_frames_and_secs

    # Frames need not be a multiple of 16 pixels wide and high: no macro blocks. What ffmpeg has to
    # say is many lines, and follows from the one line that is raised here.
    options: dict[str, Any] = {"fps": fps, "macro_block_size": 1, "ffmpeg_log_level": "quiet"}
    # By itself a writer closes only after success, and else writes on until it is freed.
    with closing(imageio.get_writer(file, **options)) as writer:

        def write(frame: Frame) -> None:
            try:
                writer.append_data(_even(frame))
            except (OSError, ValueError) as error:
                cause = one_line(error).partition(" FFMPEG COMMAND:")[0]
                raise RunError(f"ffmpeg cannot go on with the video: {cause}") from error

        yield write
    try:
        count_frames_and_secs(str(file))
    except RuntimeError as error:  # ffmpeg ended early, which nothing else tells
        raise RunError("ffmpeg did not finish the video: is the disk full?") from error


@contextmanager
def _gif(file: Path, fps: float) -> Iterator[Callable[[Frame], None]]:
    """Gathers frames and writes them afterwards."""
    # Not by imageio, which writes also after a fault, for minutes, and once more when it is freed.
    from PIL import Image

    images: list[Image.Image] = []
    yield lambda frame: images.append(Image.fromarray(frame))
    first, *others = images
    milliseconds = 1000 / fps  # a frame
    first.save(file, save_all=True, append_images=others, duration=milliseconds, loop=0)


def _even(frame: Frame) -> Frame:
    """The frame with its last row and column again where their number is odd: H.264 has pairs."""
    height, width = frame.shape[:2]
    return np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")


@contextmanager
def _aside(file: Path) -> Iterator[Path]:
    """A path to write to, which takes the place of `file` only if nothing goes wrong."""
    aside = file.with_name(f".{file.stem}.tmp{file.suffix}")  # the suffix tells writers the format
    try:
        aside.touch()  # writers that cannot open their file complain twice more when they are freed
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}") from error
    try:
        yield aside
        aside.replace(file)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


class _Stopped(BaseException):
    """A signal's, and no environment's."""


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM ends the process with the usual status, but by way of every `finally`."""
    here = threading.current_thread() is threading.main_thread()  # no other may handle signals
    if not here or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def end(signum: int, frame: FrameType | None) -> None:
        del frame
        raise _Stopped(128 + signum)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    except _Stopped as stop:
        raise SystemExit(*stop.args) from None
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
