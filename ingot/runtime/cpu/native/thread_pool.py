"""The thread pool as LLVM IR: part of the support object (support.py).

`pool_run` leases free workers, runs the entry on all of them and releases them, without Python in
between: an interrupt cannot lose a worker, and no call waits for a worker that another call has.
support/abi.py lays out the records of a worker (WORKER), the pool (POOL) and a call (POOL_RUN).
"""

from __future__ import annotations

from ingot.support.abi import (
    CTX,
    CTX_BYTES,
    FAILED,
    POOL,
    POOL_RUN,
    QUEUE_BYTES,
    SYNC_BYTES,
    WORKER,
)


def field_at(name: str, base: str, offset: int) -> str:
    return f"  %{name} = getelementptr i8, ptr %{base}, i64 {offset}"


def pool_text() -> str:
    """Add a worker; lease one if it is free; start a job on it; stop it if it is free."""
    return f"""
define void @pool_add(ptr %pool, ptr %worker) nounwind {{
  %count = load atomic i64, ptr %pool monotonic, align 8
{field_at("workers", "pool", POOL["workers"])}
  %entry_at = getelementptr ptr, ptr %workers, i64 %count
  store ptr %worker, ptr %entry_at, align 8
  %more = add i64 %count, 1
  store atomic i64 %more, ptr %pool release, align 8
  ret void
}}
define internal i1 @lease(ptr %worker) nounwind {{
{field_at("leased_at", "worker", WORKER["leased"])}
  %pair = cmpxchg ptr %leased_at, i32 0, i32 1 acq_rel monotonic
  %leased = extractvalue {{i32, i1}} %pair, 1
  ret i1 %leased
}}
define internal void @start_job(ptr %worker) nounwind {{
entry:
{field_at("parked", "worker", WORKER["parked"])}
  %old = load atomic i32, ptr %worker monotonic, align 4
  %new = add i32 %old, 1
  %ignored = atomicrmw xchg ptr %worker, i32 %new seq_cst
  %asleep = load atomic i32, ptr %parked seq_cst, align 4
  %must = icmp ne i32 %asleep, 0
  br i1 %must, label %wake_it, label %out
wake_it:
{field_at("services_at", "worker", WORKER["services"])}
  %services = load ptr, ptr %services_at, align 8
  call void @wake(ptr %services, ptr %worker)
  br label %out
out:
  ret void
}}
define i32 @worker_stop(ptr %worker) nounwind {{
entry:
  %idle = call i1 @lease(ptr %worker)
  br i1 %idle, label %stop, label %busy
stop:
{field_at("stop_at", "worker", WORKER["stop"])}
  store atomic i32 1, ptr %stop_at release, align 4
  call void @start_job(ptr %worker)
  ret i32 1
busy:
  ret i32 0
}}"""


def worker_text(pause: str, spin_count: int) -> str:
    """A worker's loop: spin for a job, then park; run the job unless it was withdrawn; report that
    it is finished; wait again."""
    return f"""
define void @worker_main(ptr %worker) nounwind {{
entry:
{field_at("finished", "worker", WORKER["finished"])}
{field_at("parked", "worker", WORKER["parked"])}
{field_at("stop_at", "worker", WORKER["stop"])}
{field_at("caller", "worker", WORKER["caller_parked"])}
{field_at("entry_at", "worker", WORKER["entry"])}
{field_at("ctx_at", "worker", WORKER["ctx"])}
{field_at("services_at", "worker", WORKER["services"])}
{field_at("taken_at", "worker", WORKER["taken"])}
  %services = load ptr, ptr %services_at, align 8
  %begin = load atomic i32, ptr %finished acquire, align 4
  br label %idle
idle:
  %seen = phi i32 [%begin, %entry], [%job, %next]
  br label %look
look:
  %spins = phi i32 [0, %idle], [%spins_next, %wait], [0, %woken]
  %now = load atomic i32, ptr %worker acquire, align 4
  %changed = icmp ne i32 %now, %seen
  br i1 %changed, label %job_posted, label %wait_or_park
wait_or_park:
  %long = icmp ugt i32 %spins, {spin_count}
  br i1 %long, label %park_now, label %wait
wait:
  {pause}
  %spins_next = add i32 %spins, 1
  br label %look
park_now:
  %ignored = atomicrmw xchg ptr %parked, i32 1 seq_cst
  %again = load atomic i32, ptr %worker seq_cst, align 4
  %still = icmp eq i32 %again, %seen
  br i1 %still, label %sleep, label %woken
sleep:
  call void @park(ptr %services, ptr %worker, i32 %seen)
  br label %woken
woken:
  %ignored2 = atomicrmw xchg ptr %parked, i32 0 seq_cst
  br label %look
job_posted:
  %job = load atomic i32, ptr %worker acquire, align 4
  %stop = load atomic i32, ptr %stop_at acquire, align 4
  %leave = icmp ne i32 %stop, 0
  br i1 %leave, label %out, label %take
take:
  %job_before = sub i32 %job, 1
  %swap = cmpxchg ptr %taken_at, i32 %job_before, i32 %job acq_rel monotonic
  %is_taken = extractvalue {{i32, i1}} %swap, 1
  br i1 %is_taken, label %work, label %next
work:
  %run = load ptr, ptr %entry_at, align 8
  %ctx = load ptr, ptr %ctx_at, align 8
  %code = call i32 %run(ptr %ctx)
  %ignored3 = atomicrmw xchg ptr %finished, i32 %job seq_cst
  %waits = load atomic i32, ptr %caller seq_cst, align 4
  %must = icmp ne i32 %waits, 0
  br i1 %must, label %wake_caller, label %next
wake_caller:
  call void @wake(ptr %services, ptr %finished)
  br label %next
next:
  br label %idle
out:
  ret void
}}"""


def pool_run_text(pause: str, spin_count: int) -> str:
    """Lease workers and start them, run as thread 0, wait for those that have begun; 0 if no thread
    failed. A worker that has not begun yet has nothing left to do, so its job is withdrawn."""
    return f"""
define i32 @pool_run(ptr %record) nounwind {{
entry:
  %pool = load ptr, ptr %record, align 8
{field_at("wanted_at", "record", POOL_RUN["wanted"])}
{field_at("entry_at", "record", POOL_RUN["entry"])}
{field_at("ctx_at", "record", POOL_RUN["ctx"])}
{field_at("threads_at", "record", POOL_RUN["threads"])}
{field_at("leased_workers", "record", POOL_RUN["workers"])}
{field_at("pool_workers", "pool", POOL["workers"])}
  %wanted = load i64, ptr %wanted_at, align 8
  %run = load ptr, ptr %entry_at, align 8
  %ctx0 = load ptr, ptr %ctx_at, align 8
  %present = load atomic i64, ptr %pool acquire, align 8
  br label %choose
choose:
  %place = phi i64 [0, %entry], [%place_next, %took], [%place_next, %try]
  %count = phi i64 [0, %entry], [%count_next, %took], [%count, %try]
  %lacks = icmp slt i64 %count, %wanted
  %left = icmp slt i64 %place, %present
  %continue = and i1 %lacks, %left
  br i1 %continue, label %try, label %chosen
try:
  %candidate_at = getelementptr ptr, ptr %pool_workers, i64 %place
  %candidate = load ptr, ptr %candidate_at, align 8
  %place_next = add i64 %place, 1
  %is_leased = call i1 @lease(ptr %candidate)
  br i1 %is_leased, label %took, label %choose
took:
  %keep_at = getelementptr ptr, ptr %leased_workers, i64 %count
  store ptr %candidate, ptr %keep_at, align 8
  %count_next = add i64 %count, 1
  br label %choose
chosen:
  %threads = add i64 %count, 1
  store i64 %threads, ptr %threads_at, align 8
{field_at("ctx0_threads", "ctx0", CTX["threads"])}
  store i64 %threads, ptr %ctx0_threads, align 8
{field_at("sync_at", "ctx0", CTX["sync"])}
  %sync = load ptr, ptr %sync_at, align 8
  store atomic i64 0, ptr %sync monotonic, align 8
{field_at("queues", "sync", SYNC_BYTES)}
  br label %clear
clear:
  %t = phi i64 [0, %chosen], [%t_next, %clear]
  %queue_offset = mul i64 %t, {QUEUE_BYTES}
  %queue = getelementptr i8, ptr %queues, i64 %queue_offset
  store i64 0, ptr %queue, align 8
  %t_next = add i64 %t, 1
  %uncleared = icmp slt i64 %t_next, %threads
  br i1 %uncleared, label %clear, label %start
start:
  %i = phi i64 [0, %clear], [%number, %one]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %work
one:
  %worker_at = getelementptr ptr, ptr %leased_workers, i64 %i
  %worker = load ptr, ptr %worker_at, align 8
  %number = add i64 %i, 1
  %ctx_offset = mul i64 %number, {CTX_BYTES}
  %ctx = getelementptr i8, ptr %ctx0, i64 %ctx_offset
{field_at("ctx_threads", "ctx", CTX["threads"])}
  store i64 %threads, ptr %ctx_threads, align 8
{field_at("worker_entry", "worker", WORKER["entry"])}
  store ptr %run, ptr %worker_entry, align 8
{field_at("worker_ctx", "worker", WORKER["ctx"])}
  store ptr %ctx, ptr %worker_ctx, align 8
  call void @start_job(ptr %worker)
  br label %start
work:
  %code = call i32 %run(ptr %ctx0)
  br label %join
join:
  %j = phi i64 [0, %work], [%j_next, %joined]
  %unfinished = icmp slt i64 %j, %count
  br i1 %unfinished, label %await, label %out
await:
  %awaited_at = getelementptr ptr, ptr %leased_workers, i64 %j
  %awaited = load ptr, ptr %awaited_at, align 8
{field_at("finished", "awaited", WORKER["finished"])}
{field_at("caller", "awaited", WORKER["caller_parked"])}
{field_at("leased_at", "awaited", WORKER["leased"])}
{field_at("services_at", "awaited", WORKER["services"])}
{field_at("taken_at", "awaited", WORKER["taken"])}
  %goal = load atomic i32, ptr %awaited monotonic, align 4
  %finished_job = load atomic i32, ptr %finished acquire, align 4
  %is_over = icmp eq i32 %finished_job, %goal
  br i1 %is_over, label %joined, label %withdraw
withdraw:
  %job_before = sub i32 %goal, 1
  %swap = cmpxchg ptr %taken_at, i32 %job_before, i32 %goal acq_rel monotonic
  %is_withdrawn = extractvalue {{i32, i1}} %swap, 1
  br i1 %is_withdrawn, label %joined, label %look
look:
  %spins = phi i32 [0, %withdraw], [%spins_next, %wait], [0, %woken]
  %now = load atomic i32, ptr %finished acquire, align 4
  %done = icmp eq i32 %now, %goal
  br i1 %done, label %joined, label %wait_or_park
wait_or_park:
  %long = icmp ugt i32 %spins, {spin_count}
  br i1 %long, label %park_now, label %wait
wait:
  {pause}
  %spins_next = add i32 %spins, 1
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
  store atomic i32 0, ptr %leased_at release, align 4
  %j_next = add i64 %j, 1
  br label %join
out:
  %all_done = load atomic i64, ptr %sync acquire, align 8
  %has_failed = icmp uge i64 %all_done, {FAILED}
  %failed = zext i1 %has_failed to i32
  ret i32 %failed
}}"""
