"""docs/kernels.md stays true: its Python runs, in order, and its error is what Ingot says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import ingot

PAGE = (Path(__file__).parents[2] / "docs" / "kernels.md").read_text()


def python() -> str:
    return "\n".join(re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))


def test_the_examples_run(tmp_path):
    file = tmp_path / "page.py"
    file.write_text(python())
    made = runpy.run_path(str(file))
    assert made["c"].tolist() == [[4.0] * 5] * 3
    assert ingot.kernels.parse(str(made["mm_leaky"])) == made["mm_leaky"]
    assert isinstance(made["leaky_of"]({"alpha": 0.5}), ingot.KernelFunction)


def test_the_error_is_real(tmp_path, monkeypatch):
    file = tmp_path / "model.py"
    file.write_text(python().replace("leaky(Y[vi, vj])", "relu(Y[vi, vj])"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ingot.IngotError) as caught:
        runpy.run_path("model.py")
    shown = re.search(r"^```\n(\[bad-text\].*?)```$", PAGE, re.DOTALL | re.MULTILINE)
    assert shown is not None
    said = re.sub(r"model.py:\d+:\d+", "model.py:14:23", caught.value.text())
    assert said.split("\n") == shown[1].rstrip("\n").split("\n")
