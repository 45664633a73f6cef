"""How much memory is free, within the limits of containers and batch systems."""

import re
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")  # Linux' control groups, version 2


def free_bytes() -> int | None:
    """Return the memory that this process may take; None where that cannot be known."""
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    available = re.search(r"MemAvailable:\s+(\d+) kB", text)
    free = [1024 * int(available[1])] if available else []
    return min([*free, *group_bytes()], default=None)


def group_bytes(own: Path = Path("/proc/self/cgroup"), root: Path = CGROUPS) -> list[int]:
    """Return what is left of the limits of containers and batch systems, innermost first."""
    try:
        entry = re.search(r"^0::/(.*)$", own.read_text(), re.MULTILINE)
    except OSError:
        return []
    group = root / (entry[1] if entry else "")
    free = []
    for level in (group, *group.parents):
        try:
            limit, used = ((level / f"memory.{name}").read_text() for name in ("max", "current"))
            cached = re.findall(r"^inactive_file (\d+)$", (level / "memory.stat").read_text(), re.M)
            free.append(max(0, int(limit) - int(used) + sum(map(int, cached))))
        except (OSError, ValueError):  # no such file, or "max", which means no limit
            continue
    return free
