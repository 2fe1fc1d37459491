"""Can Ingot run on this operating system? Called by support/lazy.py before public names load."""

from __future__ import annotations

import sys

from ingot.support.errors import IngotError

_NAMES = {"darwin": "macOS", "win32": "Windows"}


def require_linux() -> None:
    """An error that says so where the system calls are not Linux's; else imports would fail."""
    if sys.platform == "linux":
        return
    raise IngotError(
        "bad-target",
        f"Ingot runs on Linux only, this is {_NAMES.get(sys.platform, sys.platform)}",
        why="the loader, the thread pool and the caches use Linux's system calls",
        hint="compile on Linux, in a container or WSL 2; "
        "--target c makes C code that needs no Ingot where it runs",
    )
