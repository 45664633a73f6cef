"""Which videos of a run's policies go into the page."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from td7.reports.result import Result

MEDIA_TYPES = {".mp4": "video/mp4", ".gif": "image/gif", ".webp": "image/webp"}
BEGINNINGS = {
    ".mp4": (4, b"ftyp"),
    ".gif": (0, b"GIF8"),
    ".webp": (8, b"WEBP"),
}  # bytes of the format, and where
LARGEST_VIDEO, ALL_VIDEOS = 4_000_000, 40_000_000  # bytes


def with_videos(results: Sequence[Result]) -> tuple[list[Result], list[str]]:
    """The results with the videos in their folders, and notes on those that are left out."""
    attached, notes, left = [], [], ALL_VIDEOS
    searched: set[Path] = set()  # several configurations may have the same folder
    for result in results:
        kept = []
        kinds = () if result.folder in searched else MEDIA_TYPES
        searched.add(result.folder)
        for file in sorted(f for kind in kinds for f in result.folder.glob(f"[!.]*{kind}")):
            if not _is_video(file):  # the page may be published, and the file be anything
                notes.append(f"{result.name}: {file.name} is not on the page: it is not a video")
                continue
            size, limit = file.stat().st_size, min(LARGEST_VIDEO, left)
            if size > limit:
                sizes = f"{size:,} bytes, the limit is {limit:,}"
                notes.append(f"{result.name}: {file.name} is not on the page: {sizes}")
                continue
            kept.append(file)
            left -= size
        attached.append(replace(result, videos=tuple(kept)))
    return attached, notes


def _is_video(file: Path) -> bool:
    """Whether a file is what its name says, by its first bytes."""
    begin, expected = BEGINNINGS[file.suffix]
    if not file.is_file():
        return False
    with file.open("rb") as content:
        return content.read(begin + len(expected))[begin:] == expected
