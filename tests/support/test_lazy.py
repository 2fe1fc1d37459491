"""The one table of dynamic imports."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import ingot
from ingot.support import lazy
from tests.refusal import refused

ROOT = Path(ingot.__file__).parent


def test_loads_modules_and_attributes(monkeypatch):
    monkeypatch.setitem(lazy.TABLE, "a module", "ingot.support.text")
    monkeypatch.setitem(lazy.TABLE, "an attribute", "ingot.support.text:Writer")
    assert lazy.load("a module") is sys.modules["ingot.support.text"]
    assert lazy.load("an attribute") is sys.modules["ingot.support.text"].Writer


def test_unknown_names_list_the_known():
    with pytest.raises(KeyError, match=r"codegen\.llvm"):
        lazy.load("nonesuch")


def test_a_missing_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(lazy.TABLE, "front", "onnx.nonesuch")
    with refused("bad-option", "front", "onnx", hint="pip install onnx"):
        lazy.load("front")


def test_a_broken_module_is_not_blamed_on_a_package(monkeypatch):
    monkeypatch.setitem(lazy.TABLE, "gone", "ingot.nonesuch")
    with pytest.raises(ModuleNotFoundError):
        lazy.load("gone")


def test_every_row_names_a_module_that_exists():
    for target in lazy.TABLE.values():
        parts = target.partition(":")[0].split(".")[1:]
        path = ROOT.joinpath(*parts)
        assert path.with_suffix(".py").exists() or (path / "__init__.py").exists(), target


def test_the_only_dynamic_imports():
    dynamic = re.compile(r"\bimportlib\.import_module|__import__\(")
    guilty = [
        p for p in sorted(ROOT.rglob("*.py")) if dynamic.search(p.read_text(encoding="utf-8"))
    ]
    assert [p.relative_to(ROOT).as_posix() for p in guilty] == [
        "support/lazy.py",
        "support/plugins.py",
    ]
