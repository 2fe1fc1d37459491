"""Commands: transcripts and the stages' page run; what the text names exists."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from ingot.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def load_sessions() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sessions", DOCS / "sessions.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["sessions"] = module  # its dataclass looks itself up
    spec.loader.exec_module(module)
    return module


SESSIONS = load_sessions()


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def transcripts() -> list:
    """(page, transcript): one test each, since its lines build on each other."""
    pages = [DOCS / name for name in SESSIONS.PAGES]
    found = [(page, steps) for page in pages for steps in SESSIONS.read(read(page))]
    names = [f"{page.name}: {steps[0].command.split('|')[0]}" for page, steps in found]
    return [pytest.param(steps, id=name) for (_, steps), name in zip(found, names)]


def heading(text: str) -> str:
    """The first line, numbers and spaces blanked: those of a run differ from the next one's."""
    first = (text.strip().splitlines() or [""])[0]
    return re.sub(r"[\d.]+", "0", " ".join(first.split()))


@pytest.mark.parametrize("steps", transcripts())
def test_transcripts_are_what_happens(steps: list, tmp_path: Path):
    folder = SESSIONS.prepare(tmp_path)
    for step in steps:
        done = SESSIONS.run(step.command, folder)
        assert done.exit_code == step.exit_code, done.printed
        assert heading(done.printed) == heading(step.printed), "run `python docs/sessions.py`"


def test_transcripts_are_read_as_they_are_written():
    steps = [SESSIONS.Step("a", "one\ntwo\n", 0), SESSIONS.Step("b | c", "", 3)]
    page = "```console\n" + "\n".join(step.text for step in steps) + "\n```\n"
    (found,) = SESSIONS.read(page)
    assert [(s.command, s.printed.strip(), s.exit_code) for s in found] == [
        ("a", "one\ntwo", 0), ("b | c", "", 3)
    ]  # fmt: skip
    assert heading("3.5 ms\nx") == heading(" 4 ms") != heading("3.5 s")


def test_every_command_has_a_transcript_and_its_help():
    text = read(DOCS / "cli.md")
    for name in COMMANDS:
        assert f"\n## {name}\n" in text and f"$ ingot {name}" in text
        assert f"<!-- made: help_{name} -->" in text


def test_the_commands_of_the_stages_page_run_in_order(tmp_path: Path):
    (tmp_path / "model.onnx").symlink_to(ROOT / "examples" / "digits" / "digits.onnx")
    lines = re.findall(r"^ingot .*$", read(DOCS / "pipeline.md"), re.M)
    assert len(lines) >= 5
    for line in lines:
        command = re.split(r"\s{2,}", line)[0].replace("NAME", "max_pool")
        done = SESSIONS.run(command, tmp_path)
        assert done.exit_code == 0 and done.printed, f"{line}\n{done.printed}"


def test_the_makefile_has_the_readmes_targets():
    makefile = read(ROOT / "Makefile")
    for target in re.findall(r"^make ([\w-]+)", read(ROOT / "README.md"), re.M):
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_commands_in_the_text_exist():
    """`make target`, `ingot command`, `python file.py` and `python -m module`, in backquotes."""
    makefile = read(ROOT / "Makefile")
    for path in [*DOCS.glob("*.md"), *ROOT.glob("*.md")]:
        for code in re.findall(r"`([^`\n]+)`", read(path)):
            where = f"{path.name}: {code}"
            if found := re.match(r"make ([a-z][\w-]*)(?: |$)", code):
                assert re.search(rf"^{found[1]}:", makefile, re.M), where
            if found := re.match(r"ingot ([a-z]+)(?: |$)", code):
                assert found[1] in COMMANDS, where
            if found := re.match(r"python (?!-)([\w/.]+\.py)", code):
                assert (ROOT / found[1]).exists(), where
            if found := re.match(r"python -m ((?:benchmarks|tests|ingot)[\w.]*)", code):
                assert importlib.util.find_spec(found[1]) is not None, where
