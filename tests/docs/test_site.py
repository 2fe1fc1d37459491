"""`make site`: it builds without a warning, needs no network, and has every page."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.docs.fences import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    environment = {"PATH": "/usr/bin:/bin", "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return folder


def test_every_page_is_there(site: Path):
    made = {path.stem for path in site.glob("*.html")}
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"README"}
    assert pages | {"index", "by-task", "changelog", "security", "contributing"} <= made
    assert not list(site.rglob("*.py"))


def test_nothing_is_loaded_from_the_network(site: Path):
    pages = list(site.glob("*.html"))
    loaded = r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=[\"']?(?:https?:)?//[^\"' >]+"
    found = {text for page in pages for text in re.findall(loaded, page.read_text())}
    assert len(pages) > 30 and not found
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert not re.search(r"url\([\"']?https?:|@import", styles)


def test_search_has_an_index_that_pages_from_the_file_system_load(site: Path):
    script = (site / "search" / "search_index.js").read_text()
    index = json.loads(script.removeprefix("var __index = "))
    assert any("Winograd" in entry["text"] for entry in index["docs"])
    page = (site / "index.html").read_text()
    assert '<script src="assets/iframe-worker-shim.js">' in page


def test_links_are_pages_with_their_titles(site: Path):
    page = (site / "index.html").read_text()
    assert '<a href="first-model.html">An hour with your model</a>' in page
    assert not re.search(r'href="[^"]*\.md', page)


class _AnyTag(yaml.SafeLoader):
    """mkdocs.yml names a function; here its name is enough."""


_AnyTag.add_multi_constructor("!", lambda loader, suffix, node: suffix)
_AnyTag.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)


def test_the_navigation_has_a_place_for_pages_to_come():
    text = (ROOT / "mkdocs.yml").read_text()
    nav = json.dumps(yaml.load(text, Loader=_AnyTag)["nav"])
    assert '"api.md"' in nav and '"verify.md"' in nav
