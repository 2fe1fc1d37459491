"""LLVM IR text of `next_part`, which part of a launch a thread does next, and of `barrier`, which
waits until parts are done. Used by llvm_program.py.

Each thread has an even share of 0 … extent-1, cut into parts. It does its own in order; when none
is left, it takes parts of the others': a core that is slow, or busy with something else, is helped.
Which thread does a part changes no bit of the result.

A thread's word in shared memory says `launch << CLAIM_BITS | parts taken`. All threads number the
launches alike. A word with an older number is a share that nobody has begun; one with a newer
number is done with, since a thread goes on to the next launch only when all parts of this one are
taken. So no word is ever reset during a call, and no thread waits here.

A barrier waits for parts, not for threads: `done` in shared memory counts all parts done since the
call began, and every thread knows how many there are before each barrier. A thread tells of a part
when it asks for the next. So nobody waits for a worker that was not woken yet, or that the system
has put aside between two parts; when it comes, it finds everything taken and runs after the others.
"""

from __future__ import annotations

from ingot.support.abi import CLAIM_BITS, CLAIM_BYTES, FAILED, SERVICES, SYNC, SYNC_BYTES

# this thread's place in a launch: how many shares it is done with, and the part it was given; how
# many parts it has done, or found to be of no iterations, and not told of
STATE = "{i64, i64, i64, i64}"
UNTOLD = 3


def next_part_text() -> str:
    """`i1 next_part(sync, thread, threads, extent, launch, parts, state)`: is there another?"""
    return f"""
define internal i1 @next_part(ptr %sync, i64 %thread, i64 %threads, i64 %extent, i64 %launch,
    i64 %parts, ptr %state) nounwind "no-builtins" {{
entry:
  %low_at = getelementptr {STATE}, ptr %state, i64 0, i32 1
  %high_at = getelementptr {STATE}, ptr %state, i64 0, i32 2
  %count_at = getelementptr {STATE}, ptr %state, i64 0, i32 {UNTOLD}
  %done0 = load i64, ptr %state, align 8
  %tag = shl i64 %launch, {CLAIM_BITS}
  %alone = icmp eq i64 %threads, 1
  br i1 %alone, label %single, label %tell_if
tell_if:
  %untold = load i64, ptr %count_at, align 8
  %none = icmp eq i64 %untold, 0
  br i1 %none, label %share, label %tell
tell:
  %told = atomicrmw add ptr %sync, i64 %untold seq_cst
  store i64 0, ptr %count_at, align 8
  br label %share
single:
  store i64 1, ptr %state, align 8
  store i64 0, ptr %low_at, align 8
  store i64 %extent, ptr %high_at, align 8
  %first = icmp eq i64 %done0, 0
  %some = icmp sgt i64 %extent, 0
  %whole = and i1 %first, %some
  ret i1 %whole
share:
  %done = phi i64 [%done0, %tell_if], [%done0, %tell], [%done_next, %leave]
  %no_more = icmp uge i64 %done, %threads
  br i1 %no_more, label %out, label %look
look:
  %turned = add i64 %thread, %done
  %beyond = icmp uge i64 %turned, %threads
  %wrapped = sub i64 %turned, %threads
  %whose = select i1 %beyond, i64 %wrapped, i64 %turned
  %claims = getelementptr i8, ptr %sync, i64 {SYNC_BYTES}
  %offset = mul i64 %whose, {CLAIM_BYTES}
  %word = getelementptr i8, ptr %claims, i64 %offset
  %seen0 = load atomic i64, ptr %word monotonic, align 8
  br label %try
try:
  %seen = phi i64 [%seen0, %look], [%other, %take], [%now, %given]
  %is_begun = icmp uge i64 %seen, %tag
  %taken_raw = sub i64 %seen, %tag
  %taken = select i1 %is_begun, i64 %taken_raw, i64 0
  %over = icmp uge i64 %taken, %parts
  br i1 %over, label %leave, label %take
take:
  %taken_next = add i64 %taken, 1
  %now = or i64 %tag, %taken_next
  %swap = cmpxchg ptr %word, i64 %seen, i64 %now monotonic monotonic, align 8
  %other = extractvalue {{i64, i1}} %swap, 0
  %won = extractvalue {{i64, i1}} %swap, 1
  br i1 %won, label %given, label %try
given:
  %cuts = mul i64 %threads, %parts
  %before = mul i64 %whose, %parts
  %number = add i64 %before, %taken
  %number_next = add i64 %number, 1
  %low_product = mul i64 %extent, %number
  %high_product = mul i64 %extent, %number_next
  %low = udiv i64 %low_product, %cuts
  %high = udiv i64 %high_product, %cuts
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
  br label %share
out:
  ret i1 false
}}
"""


def barrier_text(triple: str, spin_count: int) -> str:
    """`i1 barrier(sync, threads, services, untold, wanted)`: go on when `wanted` parts are done
    since the call began. True: leave, somebody has failed. `fail` raises `done` beyond what anybody
    waits for, so that all leave. Who comes to an open barrier wakes those who sleep there; one of
    them is who told of the last part."""
    pause = 'call void asm sideeffect "pause", ""()' if triple.startswith("x86") else ""
    return f"""
define internal void @rouse(ptr %sync, ptr %services) nounwind "no-builtins" {{
entry:
  %parked_at = getelementptr i8, ptr %sync, i64 {SYNC["parked"]}
  %sleepers = load atomic i64, ptr %parked_at seq_cst, align 8
  %any = icmp ne i64 %sleepers, 0
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
  call void @rouse(ptr %sync, ptr %services)
  ret void
}}
define internal i1 @barrier(ptr %sync, i64 %threads, ptr %services, i64 %untold, i64 %wanted)
    noinline nounwind "no-builtins" {{
entry:
  %alone = icmp eq i64 %threads, 1
  br i1 %alone, label %by_itself, label %meet
by_itself:
  %own = load atomic i64, ptr %sync monotonic, align 8
  br label %out
meet:
  %none = icmp eq i64 %untold, 0
  br i1 %none, label %hear, label %tell
hear:
  %heard = load atomic i64, ptr %sync seq_cst, align 8
  br label %judge
tell:
  %before = atomicrmw add ptr %sync, i64 %untold seq_cst
  %after = add i64 %before, %untold
  br label %judge
judge:
  %first = phi i64 [%heard, %hear], [%after, %tell]
  %is_open = icmp uge i64 %first, %wanted
  br i1 %is_open, label %open, label %spin
open:
  call void @rouse(ptr %sync, ptr %services)
  br label %out
spin:
  %turn = phi i32 [0, %judge], [%turn_next, %wait]
  %now = load atomic i64, ptr %sync acquire, align 8
  %ready = icmp uge i64 %now, %wanted
  br i1 %ready, label %out, label %wait_or_park
wait_or_park:
  %long = icmp uge i32 %turn, {spin_count}
  br i1 %long, label %sleep, label %wait
wait:
  {pause}
  %turn_next = add i32 %turn, 1
  br label %spin
sleep:
  %park_at = getelementptr i8, ptr %services, i64 {SERVICES["park"]}
  %park = load ptr, ptr %park_at, align 8
  %cannot = icmp eq ptr %park, null
  br i1 %cannot, label %spin_on, label %announce
spin_on:
  %now1 = load atomic i64, ptr %sync acquire, align 8
  %ready1 = icmp uge i64 %now1, %wanted
  br i1 %ready1, label %out, label %spin_on
announce:
  %parked_at = getelementptr i8, ptr %sync, i64 {SYNC["parked"]}
  %ignored = atomicrmw add ptr %parked_at, i64 1 seq_cst
  br label %look
look:
  %now2 = load atomic i64, ptr %sync seq_cst, align 8
  %ready2 = icmp uge i64 %now2, %wanted
  br i1 %ready2, label %wake_up, label %doze
doze:
  %low_half = trunc i64 %now2 to i32
  call void %park(ptr %services, ptr %sync, i32 %low_half)
  br label %look
wake_up:
  %ignored2 = atomicrmw sub ptr %parked_at, i64 1 seq_cst
  br label %out
out:
  %final = phi i64 [%own, %by_itself], [%first, %open], [%now, %spin], [%now1, %spin_on],
                   [%now2, %wake_up]
  %leave = icmp uge i64 %final, {FAILED}
  ret i1 %leave
}}
"""
