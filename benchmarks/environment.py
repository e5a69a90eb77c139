"""Describe the environment of a measurement."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

__all__ = ["cache_sizes", "describe", "usable_cpus"]


def usable_cpus() -> list[int]:
    """Return the CPUs this process may use; empty if the system does not report them."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    return sorted(os.sched_getaffinity(0))


def cpu_model() -> str:
    """Return the model name of the CPU."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def cache_sizes() -> dict[str, str]:
    """Return the cache sizes of the first CPU by level and kind."""
    caches = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")
    return {
        f"L{(c / 'level').read_text().strip()} {(c / 'type').read_text().strip()}": (
            (c / "size").read_text().strip()
        )
        for c in sorted(caches)
    }


def describe() -> dict[str, object]:
    """Return machine, system, versions, load and command line."""
    return {
        "cpu": cpu_model(),
        "usable_cpus": len(usable_cpus()) or os.cpu_count(),
        "caches": cache_sizes(),
        "load_average": os.getloadavg() if hasattr(os, "getloadavg") else None,
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "files": "in the page cache: read whole by the verification before the clock runs",
        "command": shlex.join(["python", *sys.argv]),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
