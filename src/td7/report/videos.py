"""Which videos of a run's policies go into the page."""

from collections.abc import Sequence
from dataclasses import replace

from td7.report.result import Result

MEDIA_TYPES = {".mp4": "video/mp4", ".gif": "image/gif"}
LARGEST_VIDEO, ALL_VIDEOS = 4_000_000, 40_000_000  # bytes


def with_videos(results: Sequence[Result]) -> tuple[list[Result], list[str]]:
    """The results with the videos in their folders, and notes on those that are too large."""
    attached, notes, left = [], [], ALL_VIDEOS
    for result in results:
        kept = []
        for file in sorted(f for kind in MEDIA_TYPES for f in result.folder.glob(f"[!.]*{kind}")):
            size, limit = file.stat().st_size, min(LARGEST_VIDEO, left)
            if size > limit:
                sizes = f"{size:,} bytes, the limit is {limit:,}"
                notes.append(f"{result.name}: {file.name} is not on the page: {sizes}")
                continue
            kept.append(file)
            left -= size
        attached.append(replace(result, videos=tuple(kept)))
    return attached, notes
