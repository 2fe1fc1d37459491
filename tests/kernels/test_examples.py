"""The examples run and check themselves against numpy; here they are not timed."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "kernels"
NAMES = sorted(p.stem for p in FOLDER.glob("*.py") if p.stem != "timing")
A_SCREEN = 80


@pytest.mark.parametrize("name", NAMES)
def test_example(name, monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    example = importlib.import_module(name)
    timed = []
    monkeypatch.setattr(example, "compare_with_numpy", lambda *args: timed.append(args))
    example.main()
    assert len(timed) == 1


def test_there_are_four_and_each_fits_a_screen():
    assert {"mm_relu", "row_softmax", "stencil", "conv5x5"} <= set(NAMES)
    for name in NAMES:
        assert len((FOLDER / f"{name}.py").read_text().splitlines()) <= A_SCREEN, name


def test_the_timer_prints_both_rates(monkeypatch, capsys):
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    importlib.import_module("timing").compare_with_numpy(
        "x", lambda: None, lambda: None, 1e9, "GB/s"
    )
    assert "x: Ingot" in (out := capsys.readouterr().out) and "speedup" in out
