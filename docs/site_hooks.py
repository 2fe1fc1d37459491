"""mkdocs: the pages of the repository's root join the site; links whose text is a file name get the
page's title, and links to files that are no pages become their names.

In: docs/*.md and ROOT_PAGES. Out: pages whose links all lead to pages. Called by mkdocs
(mkdocs.yml).
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
# page of the site → file of the repository
ROOT_PAGES = {
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
}
_SITE_NAMES = {path: name for name, path in ROOT_PAGES.items()}
_TABLE_ROW = re.compile(r"^\|.*\|$", re.MULTILINE)
_LINK = re.compile(r"\[(?P<text>[^]]+)\]\((?P<target>[^)#\s]*)(?P<anchor>#[^)\s]*)?\)")
_CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.DOTALL | re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name, path in ROOT_PAGES.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=text))
    readme = files.get_file_from_path("README.md")
    if readme is not None:  # of docs/: it would become index.html, as the root's
        readme.name, readme.dest_uri = "by-task", "by-task.html"
    return files


def title(path: str) -> str:
    """A page's heading, for links whose text is its file name."""
    first, _, _ = (ROOT / path).read_text(encoding="utf-8").partition("\n")
    return first.removeprefix("# ")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to pages lead to their places in the site; others become the text that they have."""
    folder = "" if page.file.src_uri in ROOT_PAGES else "docs"

    def follow(match: re.Match) -> str:
        target, anchor = match["target"], match["anchor"] or ""
        if "://" in target or not target:
            return match[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        name = _SITE_NAMES.get(path, path.removeprefix("docs/"))
        if path not in _SITE_NAMES and not (path.startswith("docs/") and path.endswith(".md")):
            return f"`{match['text']}`"
        text = title(path) if match["text"].endswith(".md") else match["text"]
        return f"[{text}]({name}{anchor})"

    markdown = _TABLE_ROW.sub(lambda row: row[0].replace(r"\|", "&#124;"), markdown)
    markdown = _CODE.sub(lambda code: code[0].replace("&#124;", "|"), markdown)
    pieces, end = [], 0
    for code in _CODE.finditer(markdown):
        pieces += [_LINK.sub(follow, markdown[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*pieces, _LINK.sub(follow, markdown[end:])])
