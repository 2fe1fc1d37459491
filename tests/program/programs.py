"""Programs for the tests of the program IR: hand-written ones, as text, and planned models."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from ingot import api, pipeline
from ingot.graph.store import ConstantStore
from ingot.program import ir
from ingot.program.text import parse
from tests.models.build import HARD

# x → t → y by `double`, then a loop that doubles `s` while `go`, counted in `i`, and collects
HEAD = """
program('hand', inputs=('x', 'n'), outputs=('y', 'rows'), names=('y', 'rows'), planned=True)
symbol('m', low=0, high=9, divisor=1, source='node')
arena('main', 320, space='host')
arena('late', m * 64, space='host')
buffer('x', f32, (16,), 'input')
buffer('n', i64, (), 'input')
buffer('t', f32, (16,), 'temp', allocation=('main', 0))
buffer('s', f32, (16,), 'temp', allocation=('main', 64))
buffer('i', i64, (), 'temp', allocation=('main', 128))
buffer('go', bool, (), 'temp', allocation=('main', 192))
buffer('u', f32, (16,), 'temp', allocation=('main', 256))
buffer('v', f32, (m, 16), 'temp', allocation=('late', 0))
buffer('rows', f32, (m, 16), 'dynamic')
buffer('y', f32, (16,), 'output')
kernel('double')
@ingot.kernel
def double(a: f32[16], b: f32[16]):
    for i in parallel(16):
        b[i] = a[i] + a[i]
kernel('set')
@ingot.kernel
def set(flag: bool[1]):
    flag[0] = True
kernel('small')
@ingot.kernel
def small(a: f32[16], flag: bool[1]):
    flag[0] = a[0] < 100.0
"""

BODY = """
run('double', ('x', 't'), (), 16)
run('set', ('go',), (), 1)
barrier()
copy('s', 't')
with loop('i', 'n', 'go'):
    run('double', ('s', 'u'), (), 16)
    barrier()
    copy('s', 'u')
    run('small', ('u', 'go'), (), 1)
    append('rows', 'u')
bind('m', 'i', 0)
if flag('go'):
    run('double', ('s', 'y'), (), 16)
else:
    copy('y', 's')
"""


def hand(body: str = BODY, head: str = HEAD) -> ir.Program:
    return parse(head + body)


@lru_cache
def planned(name: str) -> tuple[ir.Program, ConstantStore]:
    """A test model after planning, and its constants."""
    session = api.make_session()
    return pipeline.run_stages(HARD[name]()[0], session, stop_after="barriers"), session.store


def rewrite(s: ir.Stmt, change: Callable[[ir.Stmt], ir.Stmt]) -> ir.Stmt:
    """`change` applied to every statement, inner ones first, in the program's order."""
    match s:
        case ir.Seq(stmts=stmts):
            s = ir.Seq(tuple(rewrite(x, change) for x in stmts))
        case ir.If(then=then, orelse=orelse) | ir.IfSize(then=then, orelse=orelse):
            s = ir.replace(s, then=rewrite(then, change), orelse=rewrite(orelse, change))
        case ir.Loop(body=body):
            s = ir.replace(s, body=rewrite(body, change))
        case ir.Par(branches=branches):
            s = ir.replace(s, branches=tuple(rewrite(x, change) for x in branches))
    return change(s)
