"""Workers and gangs, as LLVM IR: part of the support object (llvm_support.py).

`gang_run` claims free workers, runs the entry on all of them and lets them go, without Python in
between: no interrupt can lose a worker, and nobody waits for a worker that another call has.
Mailboxes, the pool's table and a gang's record are laid out in support/abi.py.
"""

from __future__ import annotations

from ingot.support.abi import (
    CLAIM_BYTES,
    CTX,
    CTX_BYTES,
    FAILED,
    GANG,
    POOL,
    SLOT,
    SYNC_BYTES,
)


def field_at(name: str, base: str, offset: int) -> str:
    return f"  %{name} = getelementptr i8, ptr %{base}, i64 {offset}"


def pool_text() -> str:
    """Add a worker; claim one if it is free; give it a command; stop it if it is free."""
    return f"""
define void @pool_add(ptr %pool, ptr %slot) nounwind {{
  %count = load atomic i64, ptr %pool monotonic, align 8
{field_at("slots", "pool", POOL["slots"])}
  %place = getelementptr ptr, ptr %slots, i64 %count
  store ptr %slot, ptr %place, align 8
  %more = add i64 %count, 1
  store atomic i64 %more, ptr %pool release, align 8
  ret void
}}
define internal i1 @claim(ptr %slot) nounwind {{
{field_at("claimed", "slot", SLOT["claimed"])}
  %pair = cmpxchg ptr %claimed, i32 0, i32 1 acq_rel monotonic
  %mine = extractvalue {{i32, i1}} %pair, 1
  ret i1 %mine
}}
define internal void @command(ptr %slot) nounwind {{
entry:
{field_at("parked", "slot", SLOT["parked"])}
  %old = load atomic i32, ptr %slot monotonic, align 4
  %new = add i32 %old, 1
  %ignored = atomicrmw xchg ptr %slot, i32 %new seq_cst
  %asleep = load atomic i32, ptr %parked seq_cst, align 4
  %must = icmp ne i32 %asleep, 0
  br i1 %must, label %rouse, label %out
rouse:
{field_at("services_at", "slot", SLOT["services"])}
  %services = load ptr, ptr %services_at, align 8
  call void @wake(ptr %services, ptr %slot)
  br label %out
out:
  ret void
}}
define i32 @worker_stop(ptr %slot) nounwind {{
entry:
  %idle = call i1 @claim(ptr %slot)
  br i1 %idle, label %stop, label %busy
stop:
{field_at("stop_at", "slot", SLOT["stop"])}
  store atomic i32 1, ptr %stop_at release, align 4
  call void @command(ptr %slot)
  ret i32 1
busy:
  ret i32 0
}}"""


def worker_text(pause: str, spin_count: int) -> str:
    """Wait for a command: look a while, then park; run the job, if it is still wanted; say so; wait
    again."""
    return f"""
define void @worker_main(ptr %slot) nounwind {{
entry:
{field_at("finished", "slot", SLOT["finished"])}
{field_at("parked", "slot", SLOT["parked"])}
{field_at("stop_at", "slot", SLOT["stop"])}
{field_at("caller", "slot", SLOT["caller_parked"])}
{field_at("entry_at", "slot", SLOT["entry"])}
{field_at("ctx_at", "slot", SLOT["ctx"])}
{field_at("services_at", "slot", SLOT["services"])}
{field_at("taken_at", "slot", SLOT["taken"])}
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
  br i1 %leave, label %out, label %take
take:
  %job_before = sub i32 %go_value, 1
  %swap = cmpxchg ptr %taken_at, i32 %job_before, i32 %go_value acq_rel monotonic
  %is_mine = extractvalue {{i32, i1}} %swap, 1
  br i1 %is_mine, label %work, label %next
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


def gang_text(pause: str, spin_count: int) -> str:
    """Claim workers and start them, run as thread 0, wait for those that have begun; 0 if nobody
    failed. What is left to a worker that has not begun is nothing, so its job is withdrawn."""
    return f"""
define i32 @gang_run(ptr %gang) nounwind {{
entry:
  %pool = load ptr, ptr %gang, align 8
{field_at("wanted_at", "gang", GANG["wanted"])}
{field_at("run_at", "gang", GANG["entry"])}
{field_at("ctx_at", "gang", GANG["ctx"])}
{field_at("team_at", "gang", GANG["team"])}
{field_at("mine", "gang", GANG["slots"])}
{field_at("theirs", "pool", POOL["slots"])}
  %wanted = load i64, ptr %wanted_at, align 8
  %run = load ptr, ptr %run_at, align 8
  %ctx0 = load ptr, ptr %ctx_at, align 8
  %present = load atomic i64, ptr %pool acquire, align 8
  br label %choose
choose:
  %place = phi i64 [0, %entry], [%place_next, %took], [%place_next, %try]
  %count = phi i64 [0, %entry], [%count_next, %took], [%count, %try]
  %lacks = icmp slt i64 %count, %wanted
  %left = icmp slt i64 %place, %present
  %look_on = and i1 %lacks, %left
  br i1 %look_on, label %try, label %chosen
try:
  %candidate_at = getelementptr ptr, ptr %theirs, i64 %place
  %candidate = load ptr, ptr %candidate_at, align 8
  %place_next = add i64 %place, 1
  %is_mine = call i1 @claim(ptr %candidate)
  br i1 %is_mine, label %took, label %choose
took:
  %keep_at = getelementptr ptr, ptr %mine, i64 %count
  store ptr %candidate, ptr %keep_at, align 8
  %count_next = add i64 %count, 1
  br label %choose
chosen:
  %team = add i64 %count, 1
  store i64 %team, ptr %team_at, align 8
{field_at("threads0", "ctx0", CTX["threads"])}
  store i64 %team, ptr %threads0, align 8
{field_at("sync_at", "ctx0", CTX["sync"])}
  %sync = load ptr, ptr %sync_at, align 8
  store atomic i64 0, ptr %sync monotonic, align 8
{field_at("claims", "sync", SYNC_BYTES)}
  br label %clear
clear:
  %t = phi i64 [0, %chosen], [%t_next, %clear]
  %claim_offset = mul i64 %t, {CLAIM_BYTES}
  %claim = getelementptr i8, ptr %claims, i64 %claim_offset
  store i64 0, ptr %claim, align 8
  %t_next = add i64 %t, 1
  %uncleared = icmp slt i64 %t_next, %team
  br i1 %uncleared, label %clear, label %start
start:
  %i = phi i64 [0, %clear], [%number, %one]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %work
one:
  %slot_at = getelementptr ptr, ptr %mine, i64 %i
  %slot = load ptr, ptr %slot_at, align 8
  %number = add i64 %i, 1
  %ctx_offset = mul i64 %number, {CTX_BYTES}
  %ctx = getelementptr i8, ptr %ctx0, i64 %ctx_offset
{field_at("threads", "ctx", CTX["threads"])}
  store i64 %team, ptr %threads, align 8
{field_at("slot_entry", "slot", SLOT["entry"])}
  store ptr %run, ptr %slot_entry, align 8
{field_at("slot_ctx", "slot", SLOT["ctx"])}
  store ptr %ctx, ptr %slot_ctx, align 8
  call void @command(ptr %slot)
  br label %start
work:
  %code = call i32 %run(ptr %ctx0)
  br label %join
join:
  %j = phi i64 [0, %work], [%j_next, %joined]
  %unfinished = icmp slt i64 %j, %count
  br i1 %unfinished, label %await, label %out
await:
  %who_at = getelementptr ptr, ptr %mine, i64 %j
  %who = load ptr, ptr %who_at, align 8
{field_at("finished", "who", SLOT["finished"])}
{field_at("caller", "who", SLOT["caller_parked"])}
{field_at("claimed", "who", SLOT["claimed"])}
{field_at("services_at", "who", SLOT["services"])}
{field_at("taken_at", "who", SLOT["taken"])}
  %goal = load atomic i32, ptr %who monotonic, align 4
  %at_once = load atomic i32, ptr %finished acquire, align 4
  %is_over = icmp eq i32 %at_once, %goal
  br i1 %is_over, label %joined, label %withdraw
withdraw:
  %job_before = sub i32 %goal, 1
  %swap = cmpxchg ptr %taken_at, i32 %job_before, i32 %goal acq_rel monotonic
  %is_withdrawn = extractvalue {{i32, i1}} %swap, 1
  br i1 %is_withdrawn, label %joined, label %look
look:
  %turn = phi i32 [0, %withdraw], [%turn_next, %wait], [0, %woken]
  %now = load atomic i32, ptr %finished acquire, align 4
  %done = icmp eq i32 %now, %goal
  br i1 %done, label %joined, label %wait_or_park
wait_or_park:
  %long = icmp ugt i32 %turn, {spin_count}
  br i1 %long, label %park_now, label %wait
wait:
  {pause}
  %turn_next = add i32 %turn, 1
  br label %look
park_now:
  %ignored = atomicrmw xchg ptr %caller, i32 1 seq_cst
  %again = load atomic i32, ptr %finished seq_cst, align 4
  %ready = icmp eq i32 %again, %goal
  br i1 %ready, label %woken, label %sleep
sleep:
  %services = load ptr, ptr %services_at, align 8
  call void @park(ptr %services, ptr %finished, i32 %again)
  br label %woken
woken:
  %ignored2 = atomicrmw xchg ptr %caller, i32 0 seq_cst
  br label %look
joined:
  store atomic i32 0, ptr %claimed release, align 4
  %j_next = add i64 %j, 1
  br label %join
out:
  %all_done = load atomic i64, ptr %sync acquire, align 8
  %has_failed = icmp uge i64 %all_done, {FAILED}
  %failed = zext i1 %has_failed to i32
  ret i32 %failed
}}"""
