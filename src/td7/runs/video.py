"""Film a policy's evaluation episode as a video file."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from td7.errors import ControlFlow, InputError, RunError, needs_extra, one_line
from td7.rollouts.evaluation import Evaluator
from td7.rollouts.registration import make
from td7.runs.policies import Policy
from td7.seeding import Stream

FORMATS = (".mp4", ".gif")


def record(
    policy: Policy,
    file: Path,
    *,
    seed: int,
    step: int,
    resets: Stream = Stream.EVALUATION_RESET,
    say: Callable[[str], None] | None = None,
) -> None:
    """Film evaluation episode 0 of (seed, step) into `file`, an .mp4 or a .gif."""
    if file.suffix not in FORMATS:
        raise InputError(f"a video file ends in {' or '.join(FORMATS)}, given {file.name!r}")
    if not file.parent.is_dir():
        raise InputError(f"{file.parent} is not a folder")
    if file.is_dir():
        raise InputError(f"{file} is a folder, not a video file")
    try:
        import imageio_ffmpeg  # noqa: F401  # imported only to check that it is installed
        import PIL  # noqa: F401  # likewise
    except ImportError as error:
        raise needs_extra("a video", "video") from error
    task, file = policy.spec.task, file.absolute()  # a task may change the working folder
    with (
        _sigterm_cleanup(),
        _temporary(file) as temporary,
        closing(Evaluator(partial(make, task, render=True))) as evaluator,
    ):
        environment = evaluator.environments[0]
        policy.check_fits(environment.spec)
        if say is not None:
            say(f"filming 1 episode of {task.id} …")
        fps = environment.env.metadata.get("render_fps") or 30
        with {".mp4": _mp4, ".gif": _gif}[file.suffix](temporary, fps) as write:
            evaluator.play(
                policy.actor,
                seed=seed,
                step=step,
                episodes=1,
                resets=resets,
                on_frame=lambda: write(environment.render()),
            )


Frame = NDArray[np.uint8]


@contextmanager
def _mp4(file: Path, fps: float) -> Iterator[Callable[[Frame], None]]:
    """Encode each frame at once; at the end, check that the file is complete."""
    import imageio.v2 as imageio
    from imageio_ffmpeg import count_frames_and_secs

    # Frames keep their size: it need not be a multiple of 16 pixels (macro blocks). The errors
    # below replace ffmpeg's own lines.
    options: dict[str, Any] = {"fps": fps, "macro_block_size": 1, "ffmpeg_log_level": "quiet"}
    # After an error, imageio's own context manager leaves the writer open.
    with closing(imageio.get_writer(file, **options)) as writer:

        def write(frame: Frame) -> None:
            try:
                writer.append_data(_even(frame))
            except (OSError, ValueError) as error:
                cause = one_line(error).partition(" FFMPEG COMMAND:")[0]
                raise RunError(f"ffmpeg cannot continue the video: {cause}") from error

        yield write
    try:
        count_frames_and_secs(str(file))
    except RuntimeError as error:  # ffmpeg ended early without an error
        raise RunError("ffmpeg did not finish the video: is the disk full?") from error


@contextmanager
def _gif(file: Path, fps: float) -> Iterator[Callable[[Frame], None]]:
    """Collect the frames and write them at the end."""
    # Pillow, because imageio writes the file even after an error, for minutes, and again when it is
    # freed.
    from PIL import Image

    images: list[Image.Image] = []
    yield lambda frame: images.append(Image.fromarray(frame))
    first, *others = images
    milliseconds = 1000 / fps  # per frame
    first.save(file, save_all=True, append_images=others, duration=milliseconds, loop=0)


def _even(frame: Frame) -> Frame:
    """Repeat the last row and column if their number is odd: H.264 needs even sizes."""
    height, width = frame.shape[:2]
    return np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")


@contextmanager
def _temporary(file: Path) -> Iterator[Path]:
    """Give a temporary path to write to, and rename it to `file` if there is no error."""
    temporary = file.with_name(f".{file.stem}.tmp{file.suffix}")  # writers choose by the suffix
    try:
        temporary.touch()  # a writer that cannot open its file prints more errors when it is freed
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}") from error
    try:
        yield temporary
        temporary.replace(file)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


class _Terminated(ControlFlow):
    """Raised by the signal handler; environments do not catch it with `except Exception`."""


@contextmanager
def _sigterm_cleanup() -> Iterator[None]:
    """On SIGTERM, end the process with the usual status but run every `finally` first."""
    is_main = threading.current_thread() is threading.main_thread()  # others cannot handle signals
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def end(signum: int, frame: FrameType | None) -> None:
        del frame
        raise _Terminated(128 + signum)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    except _Terminated as termination:
        raise SystemExit(*termination.args) from None
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
