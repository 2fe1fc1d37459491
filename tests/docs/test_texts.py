"""The IRs' pages show texts that parse; docs/schedule.md's steps are legal.

The pages: graph.md, program.md, loops.md, schedule.md.
"""

from __future__ import annotations

import pytest

from ingot.graph import text as graph_text
from ingot.loops import script_parse, script_print
from ingot.program import text as program_text
from ingot.schedule.instructions import instruction
from ingot.schedule.schedule import Schedule
from ingot.support.errors import IngotError
from tests.docs.fences import ALL

# Y = A·B, then Z = relu(Y + bias), as docs/schedule.md says
KERNEL = """
@ingot.kernel
def mm_bias_relu(A: f32[48, 64], B: f32[64, 32], bias: f32[32], Z: f32[48, 32]):
    Y = alloc(f32[48, 32])
    for i, j, k in grid(48, 32, 64):
        with block("Y", spatial=(i, j), reduce=(k,)) as (vi, vj, vk):
            with init():
                Y[vi, vj] = 0.0
            Y[vi, vj] += A[vi, vk] * B[vk, vj]
    for i2, j2 in grid(48, 32):
        with block("Z", spatial=(i2, j2)) as (wi, wj):
            Z[wi, wj] = max(Y[wi, wj] + bias[wj], 0.0)
"""
# one value a row, along contiguous rows of both operands: what dot4 multiplies
DOTS = """
@ingot.kernel
def dots(A: f32[8, 16], B: f32[8, 16], Z: f32[8, 8]):
    for i, j, k in grid(8, 8, 16):
        with block("Y", spatial=(i, j), reduce=(k,)) as (vi, vj, vk):
            with init():
                Z[vi, vj] = 0.0
            Z[vi, vj] += A[vi, vk] * B[vj, vk]
"""


def text_of(page: str, starts: str) -> str:
    (found,) = (f.text for f in ALL if f.page == page and f.first_line.startswith(starts))
    return found


def test_the_kernel_of_the_loops_page_prints_as_it_stands():
    text = text_of("docs/loops.md", "@ingot.kernel")
    assert script_print.show(script_parse.parse(text)).strip() == text.strip()


def test_the_graph_of_the_graph_page_has_the_grammar():
    """Its values %hi and %bias are not defined, to keep it short: that is all that is wrong."""
    text = text_of("docs/graph.md", "graph mlp(")
    with pytest.raises(IngotError) as caught:
        graph_text.parse(text)
    assert "%bias" in str(caught.value) or "%hi" in str(caught.value)


def test_the_program_of_the_program_page_has_the_grammar():
    text = text_of("docs/program.md", "program('picked'")
    without_kernels = text.partition("kernel('count')")[0]
    assert "after k" in program_text.show(program_text.parse(without_kernels))


@pytest.mark.parametrize(
    ("starts", "kernel", "made"),
    [("sch = Schedule(kernel)", KERNEL, "vectorized(8)"), ("dot4 = ", DOTS, "dot4")],
)
def test_the_steps_of_the_schedule_page_are_legal(starts: str, kernel: str, made: str):
    parsed = script_parse.parse(kernel)
    names = {
        "kernel": parsed, "Schedule": Schedule, "instruction": instruction,
        "sch": Schedule(parsed),
    }  # fmt: skip
    exec(text_of("docs/schedule.md", starts), names)
    assert made in script_print.show(names["sch"].kernel)
