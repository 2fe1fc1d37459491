"""The top of a C file: what it is, how to call it, its declarations. Called by c_program.py.

A caller sees the declarations alone with `#define INGOT_DECLARATIONS_ONLY` before it includes the
file. `Layout` numbers what the caller passes in; runtime/c/ fills the same structures.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce

from ingot.arith import expr as arith
from ingot.codegen.c_text import comment, memory_type
from ingot.program import ir
from ingot.program.tables import Tables, number, tables, walk

CONDITIONS = """\
#include <float.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__FAST_MATH__)
#error "compile without -ffast-math: results rely on IEEE arithmetic"
#endif
#if FLT_EVAL_METHOD != 0
#error "float and double must be computed in their own precision (on x86: -msse2 -mfpmath=sse)"
#endif
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif
"""

DECLARATIONS = """\
#if defined(__cplusplus)
extern "C" {
#endif

struct ingot_error {
    int64_t launch;    /* number of the step that failed */
    int64_t reason;    /* above 0: the kernel's; -1: a computed size is invalid; -2: no memory */
    int64_t values[2]; /* for {} in `why` */
    const char *where; /* the model's node */
    const char *why;
};

struct ingot_block { /* memory from `resize`; all zero before the first run */
    void *data;
    int64_t rows;
    int64_t capacity; /* bytes */
};

struct ingot_call {
    void **buffers;             /* INGOT_BUFFERS pointers, as listed above */
    int64_t *sizes;             /* INGOT_SIZES dynamic dimensions, as listed above */
    void *arena;                /* ingot_arena_bytes(sizes) bytes, aligned as malloc does */
    const void *weights;        /* the weights' file in memory, if there is one */
    struct ingot_block *blocks; /* INGOT_BLOCKS; keep them for the next run, then free their data */
    void *(*resize)(void *block, size_t bytes); /* realloc; null: a run that needs it fails */
    struct ingot_error error;   /* filled in when ingot_run returns 1 */
};

/* Bytes of the arena at these sizes; -1 if they overflow or the memory plan does not hold. */
int64_t ingot_arena_bytes(const int64_t *sizes);

/* Run the model once: 0, or 1 and call->error. Nothing is kept between runs but call->blocks. */
int32_t ingot_run(struct ingot_call *call);

#if defined(__cplusplus)
}
#endif
"""


@dataclass(frozen=True)
class Layout:
    """Numbers of buffers, sizes and blocks in `struct ingot_call`."""

    program: ir.Program

    @cached_property
    def tables(self) -> Tables:
        return tables(self.program)

    @cached_property
    def buffers(self) -> dict[str, int]:
        """The caller's arrays, then outputs that a run allocates: it sets their pointers."""
        found = dict(self.tables.slots)
        for name in self.program.outputs:
            found.setdefault(name, len(found))
        return found

    @cached_property
    def blocks(self) -> dict[str, int]:
        """DYNAMIC buffers, then arenas that a run reserves."""
        reserved = {s.arena for s in walk(self.program.body) if isinstance(s, ir.Reserve)}
        arenas = (a.name for a in self.program.arenas if a.name in reserved)
        return number([*self.tables.dynamics, *arenas])

    @cached_property
    def arena_offsets(self) -> dict[str, arith.Expr]:
        """Where each arena that the caller provides begins in `call->arena`."""
        offsets: dict[str, arith.Expr] = {}
        total: arith.Expr = arith.Const(0)
        for arena in self.program.arenas:
            if arena.name not in self.blocks:
                offsets[arena.name] = total
                total = total + arena.size_bytes
        return offsets

    @property
    def arena_bytes(self) -> arith.Expr:
        """Of all arenas that the caller provides; scratch follows them."""
        own = [a.size_bytes for a in self.program.arenas if a.name in self.arena_offsets]
        total: arith.Expr = arith.Const(0)
        return reduce(arith.add, own, total)


def head(layout: Layout, arena_bytes: arith.Expr) -> str:
    """Comment, conditions and declarations."""
    macros = {
        "INGOT_BUFFERS": len(layout.buffers),
        "INGOT_SIZES": len(layout.program.symbols),
        "INGOT_BLOCKS": len(layout.blocks),
    }
    static_bytes = arith.as_int(arena_bytes)
    if static_bytes is not None:
        macros["INGOT_ARENA_BYTES"] = static_bytes
    lines = [f"#define {name} {value}" for name, value in macros.items()]
    return "\n".join([_manual(layout), CONDITIONS, *lines, "", DECLARATIONS])


def _manual(layout: Layout) -> str:
    program = layout.program
    rows = [
        f"{program.name}, compiled by Ingot: C99 without a library. Calls may run at the same",
        "time, each with its own struct ingot_call.",
        "",
    ]
    rows += [f"buffers[{n}]: {_buffer(program, name)}" for name, n in layout.buffers.items()]
    for i, s in enumerate(program.symbols):
        high = "" if s.high is None else f" to {s.high}"
        source = "set by the caller" if s.source == "input" else "set by the run"
        rows.append(f"sizes[{i}]: {s.name}, from {s.low}{high}; {source}")
    if layout.blocks:
        rows.append("The run allocates: set `blocks` and `resize`.")
    return "\n".join(["/*", *(f" * {comment(row)}".rstrip() for row in rows), " */"])


def _buffer(program: ir.Program, name: str) -> str:
    """What the caller must know of one of its arrays."""
    buffer = program.buffer_map[name]
    labels = [f"output {x}" for n, x in zip(program.outputs, program.output_names) if n == name]
    if name in program.inputs:
        is_state = name in dict(program.state)
        labels.insert(0, f"{'state' if is_state else 'input'} {name}")
    made = "" if buffer.storage in _CALLERS else "; the run sets this pointer"
    shape = ", ".join(map(str, buffer.shape))
    return (
        f"{', '.join(labels)}: {memory_type(buffer.dtype.stored)}[{shape}] ({buffer.dtype}){made}"
    )


_CALLERS = (ir.Storage.INPUT, ir.Storage.OUTPUT, ir.Storage.STATE)
