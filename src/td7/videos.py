"""A policy's episode as a video file."""

from pathlib import Path
from typing import Any

from td7.environments import make
from td7.errors import InputError
from td7.evaluation import evaluate
from td7.policies import Policy

FORMATS = (".mp4", ".gif")


def record(policy: Policy, file: Path, *, seed: int, step: int) -> None:
    """Films evaluation episode 0 of (seed, step)."""
    if file.suffix not in FORMATS:
        raise InputError(f"a video file ends in {' or '.join(FORMATS)}, given {file.name!r}")
    if not file.parent.is_dir():
        raise InputError(f"{file.parent} is not a folder")
    try:
        import imageio.v2 as imageio
        import imageio_ffmpeg  # noqa: F401  # imageio finds it by itself, but not its absence
    except ImportError as error:
        raise InputError("videos need the extra `video`: pip install 'td7[video]'") from error
    environment = make(policy.spec.task, render=True)
    fps = environment.env.metadata.get("render_fps", 30)
    options: dict[str, dict[str, Any]] = {
        # Frames need not be a multiple of 16 pixels wide and high: no macro blocks.
        ".mp4": {"fps": fps, "macro_block_size": 1},
        ".gif": {"duration": 1000 / fps, "loop": 0},  # milliseconds a frame; again and again
    }
    try:
        writer: Any
        with imageio.get_writer(file, **options[file.suffix]) as writer:
            for _ in evaluate(
                environment,
                policy.actor,
                seed=seed,
                step=step,
                episodes=1,
                on_frame=lambda: writer.append_data(environment.render()),
            ):
                pass
    finally:
        environment.close()
