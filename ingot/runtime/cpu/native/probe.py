"""Roofline probes as LLVM IR: peak multiply-add rate, copy bandwidth and read bandwidth.

    void probe_fma(ptr work, i64 rounds)    CHAINS independent chains of multiply-adds in registers
    void probe_copy(ptr to, ptr from, i64 bytes, i64 rounds)         bytes: a multiple of COPY_STEP
    void probe_read(ptr sums, ptr from, i64 bytes)               the same; SUMS vectors accumulate

Compiled with a profiled program, for the same target; runtime/cpu/peak.py runs them, so that a
profile can report each kernel's fraction of the peak.
"""

from __future__ import annotations

from ingot.dtypes import f32
from ingot.target import FMA, Target

# hides the latency of two FMA units (4 cycles each), and fits sixteen vector registers
CHAINS = 12
COPY_STEP = 256  # bytes copied by one iteration
SUMS = 4  # independent accumulators, so that memory and not the add latency is the limit


def flops_per_iteration(target: Target) -> int:
    """Of the loop of `probe_fma`: each chain has one multiply-add of all lanes."""
    return 2 * CHAINS * target.lanes(f32)


def _vector(lanes: int) -> str:
    return "float" if lanes == 1 else f"<{lanes} x float>"


def probe_text(target: Target) -> str:
    functions = [_fma_text(target), _copy_text(target), _read_text(target)]
    return "\n".join(functions).replace("nounwind {", 'nounwind "no-builtins" {')


def _fma_text(target: Target) -> str:
    """Operands are loaded from memory, so that LLVM cannot fold them."""
    lanes = target.lanes(f32)
    wide, step = _vector(lanes), 4 * lanes
    is_fused = any(target.has(feature) for feature in FMA)
    name = "llvm.fma.f32" if lanes == 1 else f"llvm.fma.v{lanes}f32"
    lines = ["define void @probe_fma(ptr %work, i64 %rounds) nounwind {", "entry:"]
    for i, operand in enumerate(["x", "y", *(f"s{c}" for c in range(CHAINS))]):
        lines.append(f"  %{operand}_at = getelementptr i8, ptr %work, i64 {i * step}")
        lines.append(f"  %{operand} = load {wide}, ptr %{operand}_at, align 4")
    lines += ["  br label %loop", "loop:", "  %n = phi i64 [0, %entry], [%n_next, %loop]"]
    for c in range(CHAINS):
        lines.append(f"  %a{c} = phi {wide} [%s{c}, %entry], [%b{c}, %loop]")
    for c in range(CHAINS):
        if is_fused:
            lines.append(f"  %b{c} = call {wide} @{name}({wide} %a{c}, {wide} %x, {wide} %y)")
        else:
            lines.append(f"  %p{c} = fmul {wide} %a{c}, %x")
            lines.append(f"  %b{c} = fadd {wide} %p{c}, %y")
    lines += ["  %n_next = add i64 %n, 1", "  %more = icmp slt i64 %n_next, %rounds"]
    lines += ["  br i1 %more, label %loop, label %done", "done:"]
    for c in range(CHAINS):
        lines.append(f"  store {wide} %b{c}, ptr %s{c}_at, align 4")
    lines += ["  ret void", "}"]
    if is_fused:
        lines.append(f"declare {wide} @{name}({wide}, {wide}, {wide})")
    return "\n".join(lines)


def _copy_text(target: Target) -> str:
    lanes = target.lanes(f32)
    wide, step = _vector(lanes), 4 * lanes
    lines = [
        "define void @probe_copy(ptr %to, ptr %from, i64 %bytes, i64 %rounds) nounwind {",
        "entry:",
        "  br label %round",
        "round:",
        "  %n = phi i64 [0, %entry], [%n_next, %round_done]",
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [0, %round], [%i_next, %loop]",
        "  %f = getelementptr i8, ptr %from, i64 %i",
        "  %t = getelementptr i8, ptr %to, i64 %i",
    ]
    for offset in range(0, COPY_STEP, step):
        lines.append(f"  %f{offset} = getelementptr i8, ptr %f, i64 {offset}")
        lines.append(f"  %v{offset} = load {wide}, ptr %f{offset}, align 4")
    for offset in range(0, COPY_STEP, step):
        lines.append(f"  %t{offset} = getelementptr i8, ptr %t, i64 {offset}")
        lines.append(f"  store {wide} %v{offset}, ptr %t{offset}, align 4")
    lines += [
        f"  %i_next = add i64 %i, {COPY_STEP}",
        "  %more = icmp slt i64 %i_next, %bytes",
        "  br i1 %more, label %loop, label %round_done",
        "round_done:",
        "  %n_next = add i64 %n, 1",
        "  %again = icmp slt i64 %n_next, %rounds",
        "  br i1 %again, label %round, label %done",
        "done:",
        "  ret void",
        "}",
    ]
    return "\n".join(lines)


def _read_text(target: Target) -> str:
    lanes = target.lanes(f32)
    wide, step = _vector(lanes), 4 * lanes
    lines = [
        "define void @probe_read(ptr %sums, ptr %from, i64 %bytes) nounwind {",
        "entry:",
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [0, %entry], [%i_next, %loop]",
    ]
    zero = "zeroinitializer" if lanes > 1 else "0.0"
    starts = [f"%s{n}" for n in range(SUMS)]
    sums = list(starts)
    body = ["  %f = getelementptr i8, ptr %from, i64 %i"]
    for number, offset in enumerate(range(0, COPY_STEP, step)):
        n = number % SUMS
        body.append(f"  %f{offset} = getelementptr i8, ptr %f, i64 {offset}")
        body.append(f"  %v{offset} = load {wide}, ptr %f{offset}, align 4")
        body.append(f"  %a{offset} = fadd {wide} {sums[n]}, %v{offset}")
        sums[n] = f"%a{offset}"
    for start, last in zip(starts, sums):
        lines.append(f"  {start} = phi {wide} [{zero}, %entry], [{last}, %loop]")
    lines += [
        *body,
        f"  %i_next = add i64 %i, {COPY_STEP}",
        "  %more = icmp slt i64 %i_next, %bytes",
        "  br i1 %more, label %loop, label %done",
        "done:",
    ]
    for n, last in enumerate(sums):
        lines.append(f"  %t{n} = getelementptr i8, ptr %sums, i64 {n * step}")
        lines.append(f"  store {wide} {last}, ptr %t{n}, align 4")
    return "\n".join([*lines, "  ret void", "}"])
