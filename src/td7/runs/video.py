"""Film a policy's evaluation episode as a video file."""

import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from td7.configs import parse_number
from td7.errors import ControlFlow, InputError, Option, RunError, needs_extra, one_line
from td7.rollouts.evaluation import Evaluator
from td7.rollouts.registration import make
from td7.runs.policies import Policy
from td7.seeding import Stream

FORMATS = (".mp4", ".gif", ".webp")


@dataclass(frozen=True)
class Cut:
    """What a video shows of an episode: its first seconds, in frames of a width in pixels."""

    seconds: float | None = None  # None: the whole episode
    width: int | None = None  # None: as the task draws; the height follows

    @classmethod
    def of(cls, seconds: float | None, width: int | None) -> "Cut":
        """Return the cut; raise an InputError for sizes that no video has."""
        if seconds is not None:
            seconds = parse_number(Option("video_seconds"), seconds, float, above=0)
        if width is not None:
            width = parse_number(Option("video_width"), width, int, at_least=16, at_most=4096)
        return cls(seconds, width)

    def frames(self, fps: float) -> float:
        """The number of frames that it has at most."""
        return math.inf if self.seconds is None else max(1, round(self.seconds * fps))

    def resized(self, frame: "Frame") -> "Frame":
        if self.width is None:
            return frame
        from PIL import Image

        height = max(1, round(frame.shape[0] * self.width / frame.shape[1]))
        return np.asarray(Image.fromarray(frame).resize((self.width, height)))


WHOLE = Cut()


def record(
    policy: Policy,
    file: Path,
    *,
    seed: int,
    step: int,
    cut: Cut = WHOLE,
    resets: Stream = Stream.EVALUATION_RESET,
    say: Callable[[str], None] | None = None,
) -> None:
    """Film evaluation episode 0 of (seed, step) into `file`, in one of the FORMATS."""
    if file.suffix not in FORMATS:
        raise InputError(f"a video file ends in {', '.join(FORMATS)}, given {file.name!r}")
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
        follow_body(environment.env)
        fps = environment.env.metadata.get("render_fps") or 30
        frames, most = count(), cut.frames(fps)
        with (_mp4 if file.suffix == ".mp4" else _images)(temporary, fps) as write:

            def film() -> None:
                if next(frames) < most:
                    write(cut.resized(environment.render()))

            evaluator.play(
                policy.actor,
                seed=seed,
                step=step,
                episodes=1,
                resets=resets,
                on_frame=film,
            )


def follow_body(env: gymnasium.Env[Any, Any]) -> None:
    """Film with MuJoCo's camera "track", if the model has one and the task names no camera.

    Gymnasium would take a camera that stays where it is, and Ant leaves its view within seconds.
    """
    task = env.unwrapped
    renderer, model = getattr(task, "mujoco_renderer", None), getattr(task, "model", None)
    if renderer is None or model is None:
        return
    if getattr(task, "camera_id", None) is None and getattr(task, "camera_name", None) is None:
        import mujoco

        renderer.camera_id = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, "track")


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
def _images(file: Path, fps: float) -> Iterator[Callable[[Frame], None]]:
    """Collect the frames and write them as one moving picture at the end."""
    # Pillow, because imageio writes the file even after an error, for minutes, and again when it is
    # freed.
    from PIL import Image

    images: list[Image.Image] = []
    yield lambda frame: images.append(Image.fromarray(frame))
    first, *others = images
    milliseconds = round(1000 / fps)  # per frame
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
