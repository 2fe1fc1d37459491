"""LLVM IR text of `next_part`: which part of a launch a thread does next. Used by llvm_program.py.

Each thread has an even share of 0 … extent-1, cut into parts. It does its own in order; when none
is left, it takes parts of the others': a core that is slow, or busy with something else, is helped.
Which thread does a part changes no bit of the result.

A thread's word in shared memory says `launch << CLAIM_BITS | parts taken`. All threads number the
launches alike. A word with an older number is a share that nobody has begun; one with a newer
number is done with, since a thread goes on to the next launch only when all parts of this one are
taken. So no word is ever reset during a call, and no thread waits here.
"""

from __future__ import annotations

from ingot.support.abi import CLAIM_BITS, CLAIM_BYTES, SYNC_BYTES

# this thread's place in a launch: how many shares it is done with, and the part it was given
STATE = "{i64, i64, i64}"


def next_part_text() -> str:
    """`i1 next_part(sync, thread, threads, extent, launch, parts, state)`: is there another?"""
    return f"""
define internal i1 @next_part(ptr %sync, i64 %thread, i64 %threads, i64 %extent, i64 %launch,
    i64 %parts, ptr %state) nounwind "no-builtins" {{
entry:
  %low_at = getelementptr {STATE}, ptr %state, i64 0, i32 1
  %high_at = getelementptr {STATE}, ptr %state, i64 0, i32 2
  %done0 = load i64, ptr %state, align 8
  %tag = shl i64 %launch, {CLAIM_BITS}
  %alone = icmp eq i64 %threads, 1
  br i1 %alone, label %single, label %share
single:
  store i64 1, ptr %state, align 8
  store i64 0, ptr %low_at, align 8
  store i64 %extent, ptr %high_at, align 8
  %first = icmp eq i64 %done0, 0
  %some = icmp sgt i64 %extent, 0
  %whole = and i1 %first, %some
  ret i1 %whole
share:
  %done = phi i64 [%done0, %entry], [%done_next, %leave]
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
