"""docs/api.md has every public name; test_pages.py checks that its text is that of the code."""

from __future__ import annotations

import re
from pathlib import Path

import ingot
from ingot.runtime.ports import PortInfo
from ingot.support import options

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")


def test_every_public_name_has_an_entry():
    headings = set(re.findall(r"^## (?:ingot\.)?(.*)$", PAGE, re.M))
    public = set(ingot.__all__) - {"__version__", "kernels"}
    assert public <= headings, public - headings
    assert {f"kernels.{name}" for name in ("parse", "wrap")} <= headings


def test_members_and_options():
    for kind in (ingot.Executable, ingot.State, ingot.Schedule, ingot.KernelFunction):
        _, _, rest = PAGE.partition(f"## ingot.{kind.__name__}\n")
        entry = rest.partition("\n## ")[0]
        for name in ("submit", "close", "trim", "run", "inputs", "reset", "split", "build"):
            is_listed = re.search(rf"^(def )?{name}[(:]", entry, re.M) is not None
            assert is_listed == hasattr(kind, name), (kind, name)
    assert "class PortInfo" in PAGE and str(PortInfo.__doc__).splitlines()[0] in PAGE
    assert all(f"`{name}`" in PAGE for name, _, _ in options.describe())
