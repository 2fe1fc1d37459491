"""Work stealing as LLVM IR: `next_chunk` gives a thread its next chunk of a launch, `barrier` waits
until chunks are done. Used by llvm_program.py.

Each thread owns an equal range of 0 … extent-1, split into chunks. It runs its own chunks in order
and then steals chunks of the other threads, so a slow or busy core does not hold up a launch. The
result does not depend on which thread runs a chunk, to the bit. Every second launch goes through
its chunks backwards: what the launch before it wrote last is in cache, what it wrote first is not
if the data exceed the cache.

A thread's queue is one word in shared memory, `launch << QUEUE_BITS | chunks taken`. All threads
number the launches alike. A word with an older launch number is a range that no thread has begun.
A word with a newer number is exhausted, since a thread goes on to the next launch only when all
chunks of this one are taken. So no word is reset during a call, and `next_chunk` never waits.

A barrier waits for chunks, not for threads: `done` in shared memory counts all chunks done since
the call began, and every thread knows how many precede each barrier. A thread publishes a finished
chunk when it asks for the next one. So no thread waits for a worker that is not awake yet, or that
the system preempted between two chunks; such a worker later finds all chunks taken and catches up.
"""

from __future__ import annotations

from ingot.support.abi import FAILED, QUEUE_BITS, QUEUE_BYTES, SERVICES, SYNC, SYNC_BYTES

# A thread's state in a launch: how many threads' ranges it has exhausted; its chunk, low … high-1;
# how many chunks it has done, or found to be empty, and not published yet.
STATE = "{i64, i64, i64, i64}"
UNPUBLISHED = 3  # the index of that count in STATE


def next_chunk_text() -> str:
    """`i1 next_chunk(sync, thread, threads, extent, launch, chunks, state)`: is there another?"""
    return f"""
define internal i1 @next_chunk(ptr %sync, i64 %thread, i64 %threads, i64 %extent, i64 %launch,
    i64 %chunks, ptr %state) nounwind "no-builtins" {{
entry:
  %low_at = getelementptr {STATE}, ptr %state, i64 0, i32 1
  %high_at = getelementptr {STATE}, ptr %state, i64 0, i32 2
  %count_at = getelementptr {STATE}, ptr %state, i64 0, i32 {UNPUBLISHED}
  %done0 = load i64, ptr %state, align 8
  %tag = shl i64 %launch, {QUEUE_BITS}
  %alone = icmp eq i64 %threads, 1
  br i1 %alone, label %single, label %publish_if_any
publish_if_any:
  %unpublished = load i64, ptr %count_at, align 8
  %none = icmp eq i64 %unpublished, 0
  br i1 %none, label %next_queue, label %publish
publish:
  %ignored = atomicrmw add ptr %sync, i64 %unpublished seq_cst
  store i64 0, ptr %count_at, align 8
  br label %next_queue
single:
  store i64 1, ptr %state, align 8
  store i64 0, ptr %low_at, align 8
  store i64 %extent, ptr %high_at, align 8
  %first = icmp eq i64 %done0, 0
  %some = icmp sgt i64 %extent, 0
  %whole = and i1 %first, %some
  ret i1 %whole
next_queue:
  %done = phi i64 [%done0, %publish_if_any], [%done0, %publish], [%done_next, %leave]
  %no_more = icmp uge i64 %done, %threads
  br i1 %no_more, label %out, label %look
look:
  %sum = add i64 %thread, %done
  %beyond = icmp uge i64 %sum, %threads
  %wrapped = sub i64 %sum, %threads
  %victim = select i1 %beyond, i64 %wrapped, i64 %sum
  %queues = getelementptr i8, ptr %sync, i64 {SYNC_BYTES}
  %offset = mul i64 %victim, {QUEUE_BYTES}
  %word = getelementptr i8, ptr %queues, i64 %offset
  %seen0 = load atomic i64, ptr %word monotonic, align 8
  br label %try
try:
  %seen = phi i64 [%seen0, %look], [%other, %take], [%now, %got_chunk]
  %is_begun = icmp uge i64 %seen, %tag
  %taken_raw = sub i64 %seen, %tag
  %taken = select i1 %is_begun, i64 %taken_raw, i64 0
  %over = icmp uge i64 %taken, %chunks
  br i1 %over, label %leave, label %take
take:
  %taken_next = add i64 %taken, 1
  %now = or i64 %tag, %taken_next
  %swap = cmpxchg ptr %word, i64 %seen, i64 %now monotonic monotonic, align 8
  %other = extractvalue {{i64, i1}} %swap, 0
  %won = extractvalue {{i64, i1}} %swap, 1
  br i1 %won, label %got_chunk, label %try
got_chunk:
  %chunk_count = mul i64 %threads, %chunks
  %before = mul i64 %victim, %chunks
  %last = sub i64 %chunks, 1
  %mirrored = sub i64 %last, %taken
  %odd = and i64 %launch, 1
  %is_odd = icmp ne i64 %odd, 0
  %position = select i1 %is_odd, i64 %mirrored, i64 %taken
  %number = add i64 %before, %position
  %number_next = add i64 %number, 1
  %low_scaled = mul i64 %extent, %number
  %high_scaled = mul i64 %extent, %number_next
  %low = udiv i64 %low_scaled, %chunk_count
  %high = udiv i64 %high_scaled, %chunk_count
  store i64 %done, ptr %state, align 8
  store i64 %low, ptr %low_at, align 8
  store i64 %high, ptr %high_at, align 8
  %count = load i64, ptr %count_at, align 8
  %count_next = add i64 %count, 1
  store i64 %count_next, ptr %count_at, align 8
  %has_work = icmp ult i64 %low, %high
  br i1 %has_work, label %found, label %try
found:
  ret i1 true
leave:
  %done_next = add i64 %done, 1
  br label %next_queue
out:
  ret i1 false
}}
"""


def barrier_text(triple: str, spin_count: int) -> str:
    """`i1 barrier(sync, threads, services, unpublished, wanted)`: return when `wanted` chunks are
    done since the call began; true if a thread has failed. `fail` raises `done` beyond every
    `wanted`, so that all threads leave. A thread that finds the barrier open wakes those that are
    parked; the thread that publishes the last chunk always does."""
    pause = 'call void asm sideeffect "pause", ""()' if triple.startswith("x86") else ""
    return f"""
define internal void @wake_parked(ptr %sync, ptr %services) nounwind "no-builtins" {{
entry:
  %parked_at = getelementptr i8, ptr %sync, i64 {SYNC["parked"]}
  %parked = load atomic i64, ptr %parked_at seq_cst, align 8
  %any = icmp ne i64 %parked, 0
  br i1 %any, label %call, label %out
call:
  %wake_at = getelementptr i8, ptr %services, i64 {SERVICES["wake"]}
  %wake = load ptr, ptr %wake_at, align 8
  call void %wake(ptr %services, ptr %sync)
  br label %out
out:
  ret void
}}
define internal void @fail(ptr %sync, ptr %services) noinline nounwind "no-builtins" {{
  %ignored = atomicrmw add ptr %sync, i64 {FAILED + 1} seq_cst
  call void @wake_parked(ptr %sync, ptr %services)
  ret void
}}
define internal i1 @barrier(ptr %sync, i64 %threads, ptr %services, i64 %unpublished, i64 %wanted)
    noinline nounwind "no-builtins" {{
entry:
  %alone = icmp eq i64 %threads, 1
  br i1 %alone, label %single, label %join
single:
  %own = load atomic i64, ptr %sync monotonic, align 8
  br label %out
join:
  %none = icmp eq i64 %unpublished, 0
  br i1 %none, label %read, label %publish
read:
  %read_now = load atomic i64, ptr %sync seq_cst, align 8
  br label %check
publish:
  %before = atomicrmw add ptr %sync, i64 %unpublished seq_cst
  %after = add i64 %before, %unpublished
  br label %check
check:
  %first = phi i64 [%read_now, %read], [%after, %publish]
  %is_open = icmp uge i64 %first, %wanted
  br i1 %is_open, label %open, label %spin
open:
  call void @wake_parked(ptr %sync, ptr %services)
  br label %out
spin:
  %spins = phi i32 [0, %check], [%spins_next, %wait]
  %now = load atomic i64, ptr %sync acquire, align 8
  %ready = icmp uge i64 %now, %wanted
  br i1 %ready, label %out, label %wait_or_park
wait_or_park:
  %long = icmp uge i32 %spins, {spin_count}
  br i1 %long, label %sleep, label %wait
wait:
  {pause}
  %spins_next = add i32 %spins, 1
  br label %spin
sleep:
  %park_at = getelementptr i8, ptr %services, i64 {SERVICES["park"]}
  %park = load ptr, ptr %park_at, align 8
  %cannot = icmp eq ptr %park, null
  br i1 %cannot, label %spin_forever, label %count_parked
spin_forever:
  %now1 = load atomic i64, ptr %sync acquire, align 8
  %ready1 = icmp uge i64 %now1, %wanted
  br i1 %ready1, label %out, label %spin_forever
count_parked:
  %parked_at = getelementptr i8, ptr %sync, i64 {SYNC["parked"]}
  %ignored = atomicrmw add ptr %parked_at, i64 1 seq_cst
  br label %look
look:
  %now2 = load atomic i64, ptr %sync seq_cst, align 8
  %ready2 = icmp uge i64 %now2, %wanted
  br i1 %ready2, label %wake_up, label %park_here
park_here:
  %low_half = trunc i64 %now2 to i32
  call void %park(ptr %services, ptr %sync, i32 %low_half)
  br label %look
wake_up:
  %ignored2 = atomicrmw sub ptr %parked_at, i64 1 seq_cst
  br label %out
out:
  %final = phi i64 [%own, %single], [%first, %open], [%now, %spin], [%now1, %spin_forever],
                   [%now2, %wake_up]
  %leave = icmp uge i64 %final, {FAILED}
  ret i1 %leave
}}
"""
