"""docs/add-an-op.md stays true: its Python commands run, and what it quotes is in the source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "add-an-op.md").read_text()


@pytest.mark.parametrize("code", re.findall(r'python -c "\n(.*?)"\n', PAGE, re.DOTALL))
def test_commands_run(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(code, "add-an-op.md", "exec"), {})
    assert "silu" in code and capsys.readouterr().out


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)\n```", PAGE, re.DOTALL))
def test_quotes_are_in_the_source(code: str) -> None:
    files = [*(ROOT / "ingot" / "ops").glob("*.py"), *(ROOT / "ingot/frontends/onnx").glob("*.py")]
    assert any(code in path.read_text() for path in files)
