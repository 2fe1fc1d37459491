"""A model with other weights → its package, with the code of the old one if that still fits.

In: the package of a model, and the same model with new constants. Out: a package. The graph stages
run again; if the graph is the same but for the contents of constants, only these are replaced: no
kernel is scheduled or compiled. Otherwise (a weight that was zero no longer is) it is compiled.
Called, by name, by api.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ingot import pipeline
from ingot.backends.base import Session
from ingot.backends.packaging import borrowed, constant_blob
from ingot.program import ir
from ingot.runtime.package import Package


def refreshed(package: Package, model: Any, session: Session) -> Package:
    names = [stage.name for stage in session.stages]
    last = next(i for i, s in enumerate(session.stages) if s.takes == "graph" != s.gives)
    session.fingerprint = ""
    program = pipeline.run_stages(model, session, stop_after=names[last])
    if _fits(program, package, session.fingerprint):
        blob = constant_blob(program, dict(package.constant_places), session.store)
        initial = tuple(session.store.initial.items())
        lent = borrowed(session.store)
        return replace(package, constants=blob, initial=initial, borrowed=lent)
    made = pipeline.run_stages(program, session, start_from=names[last + 1])
    return replace(made, fingerprint=session.fingerprint)


def _fits(program: ir.Program, package: Package, fingerprint: str) -> bool:
    """Is it the program that the package was made of, but for its constants?"""
    constants = {b.name for b in program.buffers if b.constant is not None}
    is_same = bool(fingerprint) and fingerprint == package.fingerprint
    is_same &= list(program.inputs) == [port.name for port in package.inputs]
    return is_same and constants == {name for name, _ in package.constant_places}
