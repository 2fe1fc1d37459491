"""What torch raises while it traces a module → IngotErrors that name module and source line."""

from __future__ import annotations

import os
import re
import traceback
from types import FrameType
from typing import Any

import torch

from ingot.support.errors import IngotError

_OWN = (os.path.dirname(torch.__file__), "<frozen", "<eval_with_key>", "<string>")
_DATA = ("GuardOnDataDependentSymNode", "data-dependent", "Could not guard", "Could not extract")
_LINE = re.compile(r'File "([^"]+)", line (\d+)')
MAX_SHOWN = 400  # characters of torch's own message


def export_error(error: BaseException, module: torch.nn.Module) -> IngotError:
    """The error for a module that torch.export refuses, or whose code fails on the examples."""
    text = str(error)
    where = source_of(error, module)
    if any(word in text or word in type(error).__name__ for word in _DATA):
        what = "the module's control flow or a size depends on the elements of a tensor"
        hint = (
            "torch.cond or torch.where for a branch, torch._check for a size; "
            "or torch.compile(module, backend='ingot'), which breaks the graph there"
        )
        return IngotError("unsupported-op", what, where=where, why=_shown(text), hint=hint)
    what = "torch.export cannot trace the module"
    hint = "torch.compile(module, backend='ingot') compiles the parts that can be traced"
    why = f"{type(error).__name__}: {_shown(text)}"
    return IngotError("unsupported-op", what, where=where, why=why, hint=hint)


def source_of(error: BaseException, module: torch.nn.Module) -> str:
    """`module fc (Linear), model.py:12: if x.sum() > 0:`: the innermost line of the user's code."""
    found = _frame(error)
    if found is None:
        lines = [m for m in _LINE.finditer(str(error)) if not m[1].startswith(_OWN)]
        return f"{lines[-1][1]}:{lines[-1][2]}" if lines else type(module).__name__
    frame, line, code = found
    place = f"{frame.f_code.co_filename}:{line}" + (f": {code}" if code else "")
    owner = frame.f_locals.get("self")
    if not isinstance(owner, torch.nn.Module):
        return place
    names = {id(m): name for name, m in module.named_modules()}
    name = names.get(id(owner), "")
    return f"module {name or '(root)'} ({type(owner).__name__}), {place}"


def _frame(error: BaseException) -> tuple[FrameType, int, str] | None:
    """The innermost frame that is not torch's own, in the error or one that it comes from."""
    seen: list[tuple[FrameType, int, str]] = []
    chain: Any = error
    while chain is not None and not seen:
        trace = chain.__traceback__
        for (frame, _), summary in zip(traceback.walk_tb(trace), traceback.extract_tb(trace)):
            is_own = summary.filename.startswith((*_OWN, os.path.dirname(__file__)))
            if not is_own and not _is_ingot(summary.filename):
                seen.append((frame, summary.lineno or 0, summary.line or ""))
        seen = [row for row in seen if isinstance(row[0].f_locals.get("self"), torch.nn.Module)]
        chain = chain.__cause__ or chain.__context__
    return seen[-1] if seen else None


def _is_ingot(filename: str) -> bool:
    return filename.startswith(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))


def _shown(text: str) -> str:
    """The first lines of torch's message."""
    first = " ".join(text.split("\n\n")[0].split())
    return first if len(first) <= MAX_SHOWN else first[:MAX_SHOWN] + " …"
