"""Every code block of README and docs runs, or a row of snippets.py says why it does not."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ingot.support import options
from tests.docs import snippets
from tests.docs.fences import ALL, ROOT, Fence
from tests.docs.test_commands import SESSIONS

ROWS = (*snippets.QUOTES, *snippets.CHECKED_BY, *snippets.EXEMPT)


def row_of(fence: Fence) -> snippets.Row | None:
    found = [
        r for r in ROWS if r.page == fence.page and fence.first_line.startswith(r.starts)
    ]  # fmt: skip
    assert len(found) <= 1, f"{fence}: several rows"
    return found[0] if found else None


# lists of targets and benchmarks: they run the tests, or take minutes
_TARGET = re.compile(r"(?:make (?P<target>[\w-]+)|python (?P<file>benchmarks/[\w/]+\.py))(?: |$)")


def is_list_of_targets(fence: Fence) -> bool:
    return all(_TARGET.match(line) for line in fence.text.splitlines())


LISTS = [fence for fence in ALL if is_list_of_targets(fence)]
RUNNABLE = [fence for fence in ALL if fence not in LISTS and row_of(fence) is None]
SCRIPTS = sorted({f.page for f in RUNNABLE if f.language == "python"} - set(snippets.RUN_BY))


def page_script(page: str) -> str:
    """The Python of a page, as the reader has typed it at its end."""
    code = "\n".join(f.text for f in RUNNABLE if f.page == page and f.language == "python")
    future = "from __future__ import annotations"
    return "\n".join([future, snippets.SETUP.get(page, ""), code])


def run_script(page: str, folder: Path) -> str:
    """What it prints; a file, since a kernel's source is read from it."""
    script = SESSIONS.prepare(folder) / "page.py"
    script.write_text(page_script(page), encoding="utf-8")
    if page in snippets.IN_A_PROCESS:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, script], cwd=folder, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        runpy.run_path(str(script))
    return said.getvalue()


@pytest.mark.parametrize("page", SCRIPTS)
def test_python_runs(page: str, monkeypatch, tmp_path: Path, tmp_path_factory):
    """With the model cache on, as it is for a reader; pages share it."""
    monkeypatch.chdir(tmp_path)
    cache = tmp_path if page == "docs/cache.md" else tmp_path_factory.getbasetemp()
    with options.override(cache_dir=str(cache / "cache"), cache_models=True):
        said = run_script(page, tmp_path)
    logging.getLogger("ingot").setLevel(logging.NOTSET)  # a page may have switched it on
    for text in PRINTS.get(page, ()):
        assert text in said


PRINTS = {
    "README.md": (
        "accuracy 0.98", "image: f32[batch, 1, 8, 8] → logits: f32[batch, 10]", "max_pool",
    ),
    "docs/runtime.md": ("{'batch=4': 'ready'}",),
    "docs/add-a-rule.md": ("tile=2x2x8",),
    "docs/write-a-kernel.md": ("feeds the reduce axis", "D_register", "of roofline"),
    "docs/read-a-profile.md": ("per run (mean of 50 runs",),
}  # fmt: skip


@pytest.mark.parametrize("fence", [f for f in RUNNABLE if f.language == "sh"], ids=str)
def test_shell_commands_run(fence: Fence, tmp_path: Path):
    for name in ("ingot", "tests"):  # of the repository's root, where pages are read
        (tmp_path / name).symlink_to(ROOT / name)
    done = SESSIONS.run(f"set -e; {fence.text}", SESSIONS.prepare(tmp_path))
    assert done.exit_code == 0 and done.printed, done.printed


@pytest.mark.parametrize("fence", [f for f in RUNNABLE if f.language == "toml"], ids=str)
def test_toml_is_read(fence: Fence):
    groups = tomllib.loads(fence.text)["project"]["entry-points"]
    real = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert set(groups) <= {*real, "ingot.devices"}


@pytest.mark.parametrize("fence", LISTS, ids=str)
def test_listed_targets_and_files_exist(fence: Fence):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for line in fence.text.splitlines():
        found = _TARGET.match(line)
        assert found is not None
        if found["target"]:
            assert re.search(rf"^{found['target']}:", makefile, re.MULTILINE), line
        else:
            assert (ROOT / found["file"]).exists(), line


@pytest.mark.parametrize("fence", RUNNABLE, ids=str)
def test_every_block_is_run_by_something(fence: Fence):
    if fence.language == "console":
        assert fence.page in {os.path.normpath(f"docs/{name}") for name in SESSIONS.PAGES}
    assert fence.language in ("python", "sh", "toml", "console"), (
        f"{fence}: add a row or a language"
    )


# --- the rows -------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.page}: {row.starts}")
def test_every_row_is_of_a_block(row: snippets.Row):
    assert row.reason and any(row_of(fence) is row for fence in ALL)


@pytest.mark.parametrize("row", snippets.QUOTES, ids=lambda row: row.starts)
def test_quotes_are_in_the_source(row: snippets.Row):
    (fence,) = (fence for fence in ALL if row_of(fence) is row)
    assert fence.text in (ROOT / row.reason).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("page", "test"),
    [*snippets.RUN_BY.items(), *((row.page, row.reason) for row in snippets.CHECKED_BY)],
)
def test_the_other_test_reads_the_page(page: str, test: str):
    assert Path(page).name in (ROOT / test).read_text(encoding="utf-8")


def test_a_broken_block_fails(monkeypatch, tmp_path: Path):
    broken = Fence("docs/x.md", "python", "assert 1 + 1 == 3\n", 1, False)
    monkeypatch.setattr("tests.docs.test_snippets.RUNNABLE", [broken])
    with pytest.raises(AssertionError):
        run_script("docs/x.md", tmp_path)
