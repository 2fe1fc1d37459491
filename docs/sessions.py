"""Replays the `$ ingot …` lines of the pages and writes down what they really print.

    python docs/sessions.py          rewrite the transcripts in the pages that have some

A transcript is a block ```console: lines that begin with `$ ` are run in a shell, in order, in a
folder that has `examples/`; what they print follows, and the exit code if it is not 0. Times change
from run to run, so tests/docs/ runs the lines and compares only exit codes and headings.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ("cli.md", "first-model.md", "read-a-profile.md", "../README.md")
WIDTH = 118
HOME, CACHE = "/home/you/ingot", "~/.cache/ingot"  # where the reader has them
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Step:
    command: str
    printed: str  # both streams
    exit_code: int

    @property
    def text(self) -> str:
        lines = self.printed.rstrip().splitlines()
        lines += [f"exit code {self.exit_code}"] if self.exit_code else []
        return "\n".join([f"$ {self.command}", *lines])


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


def read(text: str) -> list[list[Step]]:
    """The transcripts of a page, as they stand."""
    return [list(_steps(block)) for block in _BLOCK.findall(text)]


def _steps(block: str) -> Iterator[Step]:
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        code = re.search(r"^exit code (\d+)\s*\Z", printed, re.MULTILINE)
        printed = printed[: code.start()] if code else printed
        yield Step(command, printed, int(code[1]) if code else 0)


def run(command: str, folder: Path) -> Step:
    """One line in a shell whose `ingot` is this one."""
    shell = f'ingot() {{ "$PYTHON" -m ingot.cli "$@"; }}; {command}'
    kept = {k: v for k, v in os.environ.items() if not k.startswith("INGOT_")}
    done = subprocess.run(
        ["bash", "-c", shell],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder, timeout=300,
        env={**kept, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT), "COLUMNS": "100",
             "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
             "INGOT_CACHE_DIR": str(folder / "cache"), "INGOT_CACHE_MODELS": "1"},
    )  # fmt: skip
    printed = done.stdout.replace(str(ROOT), HOME).replace(str(folder / "cache"), CACHE)
    return Step(command, "\n".join(map(_cut, printed.splitlines())), done.returncode)


def replay(text: str, folder: Path) -> str:
    """The page with every transcript made again."""

    def again(match: re.Match) -> str:
        steps = [run(step.command, folder) for step in _steps(match[1])]
        return "```console\n" + "\n".join(step.text for step in steps) + "\n```"

    return _BLOCK.sub(again, text)


def prepare(folder: Path) -> Path:
    (folder / "examples").symlink_to(ROOT / "examples")
    return folder


def main() -> None:
    for name in PAGES:
        path = ROOT / "docs" / name
        with tempfile.TemporaryDirectory() as scratch:
            new = replay(path.read_text(encoding="utf-8"), prepare(Path(scratch)))
        path.write_text(new, encoding="utf-8")
        print(f"{name}: {sum(map(len, read(new)))} commands")


if __name__ == "__main__":
    main()
