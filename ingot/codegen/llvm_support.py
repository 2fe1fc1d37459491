"""The runtime's native part, as LLVM IR: parking, memory services, the worker loop, a gang's call.

One closed object, the same for every model. It asks the operating system through function pointers
that the runtime puts in the services table (support/abi.py), so it has no undefined symbol.
"""

from __future__ import annotations

from ingot.support.abi import CTX, DYNAMIC, DYNAMIC_BYTES, GANG, SERVICES, SLOT, SYNC, SYSTEM

FUTEX_WAIT_PRIVATE, FUTEX_WAKE_PRIVATE = 128, 129


def support_text(triple: str, spin_count: int = 2000) -> str:
    pause = 'call void asm sideeffect "pause", ""()' if triple.startswith("x86") else ""
    parts = [_PARKING, _MEMORY, _worker(pause, spin_count), _gang(pause, spin_count)]
    return "\n".join(parts).replace("nounwind {", 'nounwind "no-builtins" {')


def _at(name: str, base: str, offset: int) -> str:
    return f"  %{name} = getelementptr i8, ptr %{base}, i64 {offset}"


_PARKING = f"""
define void @park(ptr %services, ptr %address, i32 %expected) nounwind {{
{_at("f_at", "services", SYSTEM["syscall"])}
  %f = load ptr, ptr %f_at, align 8
{_at("n_at", "services", SYSTEM["futex"])}
  %n = load i64, ptr %n_at, align 8
  %r = call i64 (i64, ...) %f(i64 %n, ptr %address, i64 {FUTEX_WAIT_PRIVATE}, i32 %expected,
                              ptr null, ptr null, i64 0)
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
  %fits = icmp sle i64 %bytes, %size
  %exists = icmp ne ptr %base, null
  %keep = and i1 %fits, %exists
  br i1 %keep, label %same, label %renew
same:
  ret ptr %base
renew:
  call void @give(ptr %services, ptr %base)
  store i64 0, ptr %size_at, align 8
  store ptr null, ptr %base_at, align 8
  %bad = icmp slt i64 %bytes, 0
  br i1 %bad, label %none, label %try
try:
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
  %fits = icmp sle i64 %bytes, %size
  %exists = icmp ne ptr %old, null
  %keep = and i1 %fits, %exists
  br i1 %keep, label %done, label %renew
renew:
  %twice = mul i64 %size, 2
  %larger = icmp sgt i64 %twice, %bytes
  %want = select i1 %larger, i64 %twice, i64 %bytes
  %new = call ptr @take(ptr %services, i64 %want)
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %none, label %copy
copy:
  %i = phi i64 [0, %renew], [%i_next, %byte]
  %more = icmp slt i64 %i, %size
  br i1 %more, label %byte, label %swap
byte:
  %from = getelementptr i8, ptr %old, i64 %i
  %to = getelementptr i8, ptr %new, i64 %i
  %v = load i8, ptr %from, align 1
  store i8 %v, ptr %to, align 1
  %i_next = add i64 %i, 1
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


def _worker(pause: str, spin_count: int) -> str:
    """Wait for a command: look a while, then park; run the job; say so; wait again."""
    return f"""
define void @worker_main(ptr %slot) nounwind {{
entry:
{_at("finished", "slot", SLOT["finished"])}
{_at("parked", "slot", SLOT["parked"])}
{_at("stop_at", "slot", SLOT["stop"])}
{_at("caller", "slot", SLOT["caller_parked"])}
{_at("entry_at", "slot", SLOT["entry"])}
{_at("ctx_at", "slot", SLOT["ctx"])}
{_at("services_at", "slot", SLOT["services"])}
  %services = load ptr, ptr %services_at, align 8
  %begin = load atomic i32, ptr %finished acquire, align 4
  br label %idle
idle:
  %seen = phi i32 [%begin, %entry], [%go_value, %next]
  br label %look
look:
  %turn = phi i32 [0, %idle], [%turn_next, %wait], [0, %woken]
  %now = load atomic i32, ptr %slot acquire, align 4
  %changed = icmp ne i32 %now, %seen
  br i1 %changed, label %go, label %wait_or_park
wait_or_park:
  %long = icmp ugt i32 %turn, {spin_count}
  br i1 %long, label %park_now, label %wait
wait:
  {pause}
  %turn_next = add i32 %turn, 1
  br label %look
park_now:
  %ignored = atomicrmw xchg ptr %parked, i32 1 seq_cst
  %again = load atomic i32, ptr %slot seq_cst, align 4
  %still = icmp eq i32 %again, %seen
  br i1 %still, label %sleep, label %woken
sleep:
  call void @park(ptr %services, ptr %slot, i32 %seen)
  br label %woken
woken:
  %ignored2 = atomicrmw xchg ptr %parked, i32 0 seq_cst
  br label %look
go:
  %go_value = load atomic i32, ptr %slot acquire, align 4
  %stop = load atomic i32, ptr %stop_at acquire, align 4
  %leave = icmp ne i32 %stop, 0
  br i1 %leave, label %out, label %work
work:
  %run = load ptr, ptr %entry_at, align 8
  %ctx = load ptr, ptr %ctx_at, align 8
  %code = call i32 %run(ptr %ctx)
  %ignored3 = atomicrmw xchg ptr %finished, i32 %go_value seq_cst
  %waits = load atomic i32, ptr %caller seq_cst, align 4
  %must = icmp ne i32 %waits, 0
  br i1 %must, label %tell, label %next
tell:
  call void @wake(ptr %services, ptr %finished)
  br label %next
next:
  br label %idle
out:
  ret void
}}"""


def _gang(pause: str, spin_count: int) -> str:
    """Start the leased workers, run as thread 0, wait for all; 0 if nobody failed."""
    return f"""
define i32 @gang_run(ptr %gang) nounwind {{
entry:
  %count = load i64, ptr %gang, align 8
{_at("run_at", "gang", GANG["entry"])}
{_at("ctx_at", "gang", GANG["ctx"])}
{_at("pairs", "gang", GANG["pairs"])}
  %run = load ptr, ptr %run_at, align 8
  %ctx0 = load ptr, ptr %ctx_at, align 8
  br label %start
start:
  %i = phi i64 [0, %entry], [%i_next, %started]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %mine
one:
  %pair_offset = mul i64 %i, 16
  %pair = getelementptr i8, ptr %pairs, i64 %pair_offset
  %slot = load ptr, ptr %pair, align 8
  %their_at = getelementptr i8, ptr %pair, i64 8
  %their = load ptr, ptr %their_at, align 8
{_at("entry_at", "slot", SLOT["entry"])}
{_at("slot_ctx_at", "slot", SLOT["ctx"])}
{_at("parked", "slot", SLOT["parked"])}
{_at("services_at", "slot", SLOT["services"])}
  store ptr %run, ptr %entry_at, align 8
  store ptr %their, ptr %slot_ctx_at, align 8
  %old = load atomic i32, ptr %slot monotonic, align 4
  %command = add i32 %old, 1
  %ignored = atomicrmw xchg ptr %slot, i32 %command seq_cst
  %asleep = load atomic i32, ptr %parked seq_cst, align 4
  %must = icmp ne i32 %asleep, 0
  br i1 %must, label %rouse, label %started
rouse:
  %services = load ptr, ptr %services_at, align 8
  call void @wake(ptr %services, ptr %slot)
  br label %started
started:
  %i_next = add i64 %i, 1
  br label %start
mine:
  %code = call i32 %run(ptr %ctx0)
  br label %join
join:
  %j = phi i64 [0, %mine], [%j_next, %joined]
  %left = icmp slt i64 %j, %count
  br i1 %left, label %await, label %out
await:
  %join_offset = mul i64 %j, 16
  %join_pair = getelementptr i8, ptr %pairs, i64 %join_offset
  %who = load ptr, ptr %join_pair, align 8
{_at("finished", "who", SLOT["finished"])}
{_at("caller", "who", SLOT["caller_parked"])}
{_at("who_services_at", "who", SLOT["services"])}
  %wanted = load atomic i32, ptr %who monotonic, align 4
  br label %look
look:
  %turn = phi i32 [0, %await], [%turn_next, %wait], [0, %woken]
  %now = load atomic i32, ptr %finished acquire, align 4
  %done = icmp eq i32 %now, %wanted
  br i1 %done, label %joined, label %wait_or_park
wait_or_park:
  %long = icmp ugt i32 %turn, {spin_count}
  br i1 %long, label %park_now, label %wait
wait:
  {pause}
  %turn_next = add i32 %turn, 1
  br label %look
park_now:
  %ignored4 = atomicrmw xchg ptr %caller, i32 1 seq_cst
  %again = load atomic i32, ptr %finished seq_cst, align 4
  %ready = icmp eq i32 %again, %wanted
  br i1 %ready, label %woken, label %sleep
sleep:
  %who_services = load ptr, ptr %who_services_at, align 8
  call void @park(ptr %who_services, ptr %finished, i32 %again)
  br label %woken
woken:
  %ignored5 = atomicrmw xchg ptr %caller, i32 0 seq_cst
  br label %look
joined:
  %j_next = add i64 %j, 1
  br label %join
out:
{_at("sync_at", "ctx0", CTX["sync"])}
  %sync = load ptr, ptr %sync_at, align 8
{_at("failed_at", "sync", SYNC["failed"])}
  %failed = load atomic i32, ptr %failed_at acquire, align 4
  ret i32 %failed
}}"""


SYMBOLS = (*[n for n in SERVICES if n != "host"], "worker_main", "gang_run")
