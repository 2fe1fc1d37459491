"""The pages stay true: generated blocks are current, links resolve, examples run."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from ingot.support import options

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])


def load_maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_pages", DOCS / "make_pages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MAKER = load_maker()


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def blocks(page: Path, language: str) -> list[str]:
    """Code blocks of a language that people are meant to run: not those made by the script."""
    text = re.sub(r"<!-- made: \w+ -->\n```.*?^```$", "", read(page), flags=re.DOTALL | re.M)
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.M)


# --- generated blocks -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", MAKER.PAGES)
def test_made_parts_are_current(name: str):
    page = DOCS / name
    old = read(page).splitlines()
    new = MAKER.refresh(read(page)).splitlines()
    changed = [f"- {a}\n+ {b}" for a, b in zip(old, new) if a != b]
    first = "\n".join(changed[:3])
    assert old == new, f"run `python docs/make_pages.py`; {page.name} is out of date:\n{first}"


def test_every_made_part_is_on_a_page_and_can_fail():
    text = "".join(read(DOCS / name) for name in MAKER.PAGES)
    marked = re.findall(r"<!-- made: (\w+) -->", text)
    assert sorted(marked) == sorted(MAKER.BLOCKS)
    for stale in ("```\nold\n```", "| old |\n|---|\n", "0 operators\n"):
        page = f"<!-- made: counts -->\n{stale}"
        assert "operators in the graph" in MAKER.refresh(page) != page


def test_the_tour_shows_every_kind_of_stage():
    tour = read(DOCS / "tour.md")
    for text in ("graph main_graph(", "sch.vectorize(", "vectorized(8)", "fma(", "barrier()",
                 "allocation=('main',", "@llvm.fma.v8f32", "not vectorised or parallel",
                 "digit 9"):  # fmt: skip
        assert text in tour


# --- links and lists ------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", read(page)):
        assert "://" in target or (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page: Path):
    """`folder/file.py` in backquotes is the end of some file's path."""
    files = [f"/{path.relative_to(ROOT)}" for path in ROOT.glob("[!.]*/**/*.py")]
    for name in re.findall(r"`([a-z_]+(?:/[a-z_]+)*/[a-z_]+\.py)`", read(page)):
        assert any(file.endswith(f"/{name}") for file in files), f"{page.name}: {name}"


def test_the_index_has_every_page():
    index = read(DOCS / "README.md")
    missing = [p.name for p in DOCS.glob("*.md") if p.name != "README.md" and p.name not in index]
    assert not missing, f"docs/README.md does not list {', '.join(missing)}"


def test_the_dependencies_page_has_all_and_only_those():
    project = tomllib.loads(read(ROOT / "pyproject.toml"))["project"]
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(line for extra in extras for line in extra)]
    names = {re.split(r"[<>=]", line)[0] for line in wanted}
    rows = [line for line in read(DOCS / "dependencies.md").splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`([\w-]+)`", row.split("|")[1])} == names


def test_the_two_commands_exist_and_checks_run_them():
    readme, makefile = read(ROOT / "README.md"), read(ROOT / "Makefile")
    for target in ("demo", "test"):
        assert f"make {target}" in readme and re.search(rf"^{target}:", makefile, re.M)
    assert "make test" in read(ROOT / ".ci" / "run")


# --- examples -------------------------------------------------------------------------------------


def run_python(code: str) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, "example", "exec"), {})
    return said.getvalue()


def test_the_readme_example_runs(monkeypatch):
    monkeypatch.chdir(ROOT)
    (code,) = blocks(ROOT / "README.md", "python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    said = run_python(code)
    accuracy = re.search(r"accuracy (0\.\d+)", said)
    assert accuracy is not None and float(accuracy[1]) > 0.97
    assert "image: f32[batch, 1, 8, 8] → logits: f32[batch, 10]" in said and "max_pool" in said


@pytest.mark.parametrize(
    "name",
    [
        "add-a-rule.md",
        "pipeline.md",
        "report.md",
        "first-model.md",
        "cache.md",
        "runtime.md",
        "verify.md",
    ],
)
def test_other_examples_run(name: str, monkeypatch, tmp_path: Path):
    """With the model cache on, as it is for a reader, and in a folder for the files they write."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT))
    with options.override(cache_dir=str(tmp_path / "cache"), cache_models=True):
        said = [run_python(code) for code in blocks(DOCS / name, "python")]
    logging.getLogger("ingot").setLevel(logging.NOTSET)
    if name == "runtime.md":
        assert any("{'batch=4': 'ready'}" in text for text in said)


def test_the_tours_call_prints_what_it_says(monkeypatch):
    monkeypatch.chdir(ROOT)
    (code,) = blocks(DOCS / "tour.md", "python")
    assert run_python(code).strip() in read(DOCS / "tour.md")
