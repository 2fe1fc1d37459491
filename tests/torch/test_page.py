"""docs/torch.md runs as written, and so does the example of generation."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _run(*command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_runs(tmp_path):
    """Its blocks are one script: a kernel needs a file that its source is in."""
    text = (ROOT / "docs" / "torch.md").read_text()
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.M))
    assert code.count("assert") >= 5
    (tmp_path / "page.py").write_text(code)
    _run(str(tmp_path / "page.py"))


@pytest.mark.long
def test_generation_gives_the_tokens_of_eager():
    pytest.importorskip("transformers")
    said = _run(str(ROOT / "examples" / "generate_torch" / "generate.py"))
    assert "they agree" in said and "64 tokens" in said
