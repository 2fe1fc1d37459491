"""The native runtime support as LLVM IR: parking, memory, the thread pool (thread_pool.py) and
the native fast path (fast_path.py).

One closed object, the same for every model. It calls the operating system through function pointers
that the runtime puts in the services table (support/abi.py), so it has no undefined symbol.
"""

from __future__ import annotations

from ingot.runtime.cpu.native.fast_path import fast_path_text
from ingot.runtime.cpu.native.thread_pool import field_at as _at
from ingot.runtime.cpu.native.thread_pool import pool_run_text, pool_text, worker_text
from ingot.support.abi import CTX, DYNAMIC, DYNAMIC_BYTES, SYSTEM

FUTEX_WAIT_PRIVATE, FUTEX_WAKE_PRIVATE = 128, 129  # linux/futex.h


def support_text(triple: str, spin_count: int, yield_count: int) -> str:
    pause = 'call void asm sideeffect "pause", ""()' if triple.startswith("x86") else ""
    functions = [_parking(yield_count), _MEMORY, _CYCLES, pool_text()]
    functions += [worker_text(pause, spin_count), pool_run_text(pause, spin_count)]
    functions.append(fast_path_text())
    return "\n".join(functions).replace("nounwind {", 'nounwind "no-builtins" {')


# The cycle counter that a profiled entry reads: the profiler relates it to wall time.
_CYCLES = """
define i64 @cycles() nounwind {
  %n = call i64 @llvm.readcyclecounter()
  ret i64 %n
}
declare i64 @llvm.readcyclecounter()"""


def _parking(yield_count: int) -> str:
    """`park` yields the core `yield_count` times before it waits on the futex: the waker is mostly
    nearly done, and a futex wake-up takes longer than that, above all in a virtual machine."""
    return f"""
define void @park(ptr %services, ptr %address, i32 %expected) nounwind {{
entry:
{_at("y_at", "services", SYSTEM["sched_yield"])}
  %y = load ptr, ptr %y_at, align 8
  br label %look
look:
  %yields = phi i32 [0, %entry], [%yields_next, %yield_core]
  %now = load atomic i32, ptr %address acquire, align 4
  %changed = icmp ne i32 %now, %expected
  br i1 %changed, label %out, label %wait
wait:
  %long = icmp uge i32 %yields, {yield_count}
  br i1 %long, label %sleep, label %yield_core
yield_core:
  %ignored = call i32 %y()
  %yields_next = add i32 %yields, 1
  br label %look
sleep:
{_at("f_at", "services", SYSTEM["syscall"])}
  %f = load ptr, ptr %f_at, align 8
{_at("n_at", "services", SYSTEM["futex"])}
  %n = load i64, ptr %n_at, align 8
  %r = call i64 (i64, ...) %f(i64 %n, ptr %address, i64 {FUTEX_WAIT_PRIVATE}, i32 %expected,
                              ptr null, ptr null, i64 0)
  br label %out
out:
  ret void
}}
define void @wake(ptr %services, ptr %address) nounwind {{
{_at("f_at", "services", SYSTEM["syscall"])}
  %f = load ptr, ptr %f_at, align 8
{_at("n_at", "services", SYSTEM["futex"])}
  %n = load i64, ptr %n_at, align 8
  %r = call i64 (i64, ...) %f(i64 %n, ptr %address, i64 {FUTEX_WAKE_PRIVATE}, i32 2147483647,
                              ptr null, ptr null, i64 0)
  ret void
}}"""


_MEMORY = f"""
define internal ptr @take(ptr %services, i64 %bytes) nounwind {{
entry:
  %bad = icmp slt i64 %bytes, 0
  br i1 %bad, label %none, label %ask
none:
  ret ptr null
ask:
{_at("f_at", "services", SYSTEM["aligned_alloc"])}
  %f = load ptr, ptr %f_at, align 8
  %more = add i64 %bytes, 64
  %round = and i64 %more, -64
  %p = call ptr %f(i64 64, i64 %round)
  ret ptr %p
}}
define internal void @give(ptr %services, ptr %p) nounwind {{
{_at("f_at", "services", SYSTEM["free"])}
  %f = load ptr, ptr %f_at, align 8
  call void %f(ptr %p)
  ret void
}}
define ptr @alloc(ptr %services, ptr %ctx, i64 %arena, i64 %bytes) nounwind {{
entry:
{_at("table_at", "ctx", CTX["arenas"])}
  %table = load ptr, ptr %table_at, align 8
{_at("count_at", "ctx", CTX["arena_count"])}
  %count = load i64, ptr %count_at, align 8
  %base_at = getelementptr ptr, ptr %table, i64 %arena
  %place = add i64 %arena, %count
  %size_at = getelementptr i64, ptr %table, i64 %place
  %base = load ptr, ptr %base_at, align 8
  %size = load i64, ptr %size_at, align 8
  %fits = icmp ule i64 %bytes, %size  ; a size that overflowed is negative, and fits nowhere
  %exists = icmp ne ptr %base, null
  %keep = and i1 %fits, %exists
  br i1 %keep, label %same, label %renew
same:
  ret ptr %base
renew:
  call void @give(ptr %services, ptr %base)
  store i64 0, ptr %size_at, align 8
  store ptr null, ptr %base_at, align 8
  %new = call ptr @take(ptr %services, i64 %bytes)
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %none, label %got
got:
  store ptr %new, ptr %base_at, align 8
  store i64 %bytes, ptr %size_at, align 8
  ret ptr %new
none:
  ret ptr null
}}
define i32 @grow(ptr %services, ptr %ctx, i64 %number, i64 %bytes) nounwind {{
entry:
{_at("table_at", "ctx", CTX["dynamics"])}
  %table = load ptr, ptr %table_at, align 8
  %offset = mul i64 %number, {DYNAMIC_BYTES}
  %record = getelementptr i8, ptr %table, i64 %offset
{_at("size_at", "record", DYNAMIC["capacity"])}
  %old = load ptr, ptr %record, align 8
  %size = load i64, ptr %size_at, align 8
  %fits = icmp ule i64 %bytes, %size  ; a size that overflowed is negative, and fits nowhere
  %exists = icmp ne ptr %old, null
  %keep = and i1 %fits, %exists
  br i1 %keep, label %done, label %renew
renew:
  %twice = mul i64 %size, 2
  %larger = icmp ugt i64 %twice, %bytes
  %want = select i1 %larger, i64 %twice, i64 %bytes
  %new = call ptr @take(ptr %services, i64 %want)
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %none, label %copy
copy:
  %i = phi i64 [0, %renew], [%i_next, %words]
  %more = icmp slt i64 %i, %size
  br i1 %more, label %words, label %swap
words:  ; `take` rounds up, so the last words may pass the size but not the memory
  %from = getelementptr i8, ptr %old, i64 %i
  %to = getelementptr i8, ptr %new, i64 %i
  %v = load <32 x i8>, ptr %from, align 32
  store <32 x i8> %v, ptr %to, align 32
  %i_next = add i64 %i, 32
  br label %copy
swap:
  call void @give(ptr %services, ptr %old)
  store ptr %new, ptr %record, align 8
  store i64 %want, ptr %size_at, align 8
  br label %done
done:
  ret i32 0
none:
  ret i32 1
}}"""
