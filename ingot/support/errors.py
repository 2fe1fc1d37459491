"""Ingot's errors: each has a stable code and states what, where, why and what to try.

Every error that the package raises on purpose is an `IngotError`. Scripts may match on
`error.code`; `CODES` lists the codes.
"""

from __future__ import annotations

CODES: dict[str, str] = {
    "bad-model": "the model file is damaged or contradicts itself",
    "unsupported-op": "the model uses operators that Ingot does not have",
    "bad-type": "an operator's operands have incompatible types",
    "bad-graph": "a graph violates an invariant of the graph IR",
    "bad-loops": "a kernel violates an invariant of the loop IR",
    "bad-program": "a program violates an invariant of the program IR",
    "bad-schedule": "a schedule step is not legal here",
    "bad-text": "a text form could not be parsed",
    "bad-input": "an input's name, count, dtype or shape is wrong",
    "bad-option": "an option to ingot.compile or the command line is wrong",
    "bad-target": "a target's name or feature list is not understood",
    "codegen-failed": "compiling a kernel to machine code failed",
    "run-failed": "the model failed at run time",
    "limit": "a size or time limit was reached",
}


class IngotError(Exception):
    """What failed, where (by the user's own name), why, and what to try."""

    def __init__(self, code: str, what: str, *, where: str = "", why: str = "", hint: str = ""):
        assert code in CODES, f"unknown error code {code!r}"
        self.code, self.what, self.where, self.why, self.hint = code, what, where, why, hint
        super().__init__(self.text())

    def text(self) -> str:
        lines = [f"[{self.code}] {self.what}"]
        lines += [f"  where: {self.where}"] if self.where else []
        lines += [f"  why:   {self.why}"] if self.why else []
        lines += [f"  try:   {self.hint}"] if self.hint else []
        return "\n".join(lines)

    def __reduce__(self):
        keywords = {"where": self.where, "why": self.why, "hint": self.hint}
        return (_rebuild, (self.code, self.what, keywords))


def _rebuild(code: str, what: str, keywords: dict[str, str]) -> IngotError:
    return IngotError(code, what, **keywords)
