"""The ABI between emitted code and the runtime: field offsets in bytes, 8 bytes per field.

`…_BYTES` is the size of a record, padded to whole cache lines where threads share it.

The entry is `i32 run(ctx*)`; each thread of a call has its own ctx. See docs/program.md.
"""

from __future__ import annotations

# The input, u64[2], that a model with random operators has in addition to its own: the key of the
# call and its number. The runtime gives it (runtime/random_keys.py); callers do not see it.
RANDOM_KEY = "ingot.random_key"

ENTRY, KERNEL = "ingot_run", "ingot_kernel"  # the symbols of an entry and of a kernel

CTX = {
    "thread": 0,
    "threads": 8,
    "buffers": 16,  # table of the caller's arrays
    "symbols": 24,  # i64 table, a copy for each thread
    "constants": 32,  # base of the constant blob
    "arenas": 40,  # table of arena bases
    "scratch": 48,  # this thread's scratch
    "sync": 56,  # shared: see SYNC
    "error": 64,  # this thread's record: see ERROR
    "kernels": 72,  # table of function pointers
    "services": 80,  # see SERVICES
    "dynamics": 88,  # table of DYNAMIC records
    "arena_count": 96,  # capacities follow the bases in `arenas`
    "profile": 104,  # this thread's PROFILE records, one per launch; only with profile=True
    "trace": 112,  # this thread's TRACE record; only with profile=True
}
CTX_BYTES = 128

# `done` counts the chunks of launches that are done since the call began; FAILED or more means that
# a thread has failed. Threads wait (futex) on its low half; `parked` counts those that are parked.
SYNC = {"done": 0, "parked": 8}
SYNC_BYTES = 64
FAILED = 1 << 48
# After SYNC comes a work-stealing queue for each thread: one word, on a cache line of its own, that
# holds `launch number << QUEUE_BITS | chunks taken` of the thread's range. Zero when a call begins.
QUEUE_BYTES = 64
QUEUE_BITS = 8

ERROR = {"launch": 0, "reason": 8, "value0": 16, "value1": 24}  # reason 0: no error
ERROR_BYTES = 64

# `host` is `i32 host(i64 step, ptr table)`: the number of a host step, and for each of its buffers
# (operands that are present, then results) the address and the sizes of its axes; 0 if it succeeded
SERVICES = {"park": 0, "wake": 8, "alloc": 16, "grow": 24, "host": 32}
# private to the support object: functions of the operating system that it calls
SYSTEM = {"syscall": 40, "futex": 48, "aligned_alloc": 56, "free": 64, "sched_yield": 72}
SERVICES_BYTES = 128

# A worker of the thread pool. `command` and `finished` count jobs, each on a cache line of its own.
# `leased` is 1 while a call has the worker. The one that raises `taken` to a job's number by
# compare-and-swap owns the job: the worker, to run it, or its caller, to withdraw it.
WORKER = {"command": 0, "finished": 64, "parked": 128, "stop": 132, "caller_parked": 136,
          "leased": 140, "entry": 144, "ctx": 152, "services": 160, "taken": 168}  # fmt: skip
WORKER_BYTES = 192

# The thread pool of the process: the number of workers, then the address of each WORKER record.
POOL = {"count": 0, "workers": 8}

# The argument of `pool_run` (runtime/cpu/native/thread_pool.py): the pool, how many workers the
# call wants, the entry, the first of its ctxs (CTX_BYTES apart). `pool_run` fills in the number of
# threads that run, the caller's included, and the addresses of the leased workers.
POOL_RUN = {"pool": 0, "wanted": 8, "entry": 16, "ctx": 24, "threads": 32, "workers": 40}

# What the native fast path reads (runtime/cpu/native/fast_path.py): a POOL_RUN record whose memory
# is ready, what the arrays must be, and the functions of CPython that it calls. It rejects a call
# if the process has forked since the record was made (`born`). It sets `is_short` when it got fewer
# workers than wanted and the pool has fewer than `limit`.
FAST_PATH = {"forks": 0, "born": 8, "is_short": 16, "limit": 24, "pool_run": 32, "inputs": 40,
             "outputs": 48, "array_type": 56, "none": 64, "make": 72, "call": 80, "new_list": 88,
             "set_item": 96, "incref": 104, "decref": 112, "save": 120, "restore": 128,
             "number": 136, "ports": 144}  # fmt: skip
# For each input, then each output: its element type (an output: the arguments that make it), the
# table entry that receives its address, its rank, its sizes.
FAST_PATH_PORT = {"what": 0, "place": 8, "rank": 16, "shape": 24}
FAST_PATH_PORT_BYTES = 32

# Field offsets of a numpy array object, in bytes; rank and flags have 32 bits. They have never
# changed; runtime/cpu/fast_path.py checks them against a real array before use.
ARRAY = {"type": 8, "data": 16, "rank": 24, "shape": 32, "dtype": 56, "flags": 64}
ARRAY_IS_PLAIN = 0x501  # contiguous, aligned, writeable

# Cycles that a thread spent in a launch, and in barriers between that launch and the next.
PROFILE = {"busy": 0, "wait": 8}
PROFILE_BYTES = 16

# What a thread did when: `count` events since the record was cleared, of which the first `capacity`
# are at `events`. An EVENT is one call of a kernel, for the iterations low … high-1 of its parallel
# loop, or (`wait` is not 0) the time in a barrier after it; `start` and `stop` are cycle counts.
TRACE = {"count": 0, "capacity": 8, "events": 16}
TRACE_BYTES = 64
EVENT = {"launch": 0, "wait": 8, "low": 16, "high": 24, "start": 32, "stop": 40}
EVENT_BYTES = 48

DYNAMIC = {"data": 0, "rows": 8, "capacity": 16}
DYNAMIC_BYTES = 24

ALIGNMENT = 64  # of arenas, scratch, constants and every buffer placed in them

# Reasons of the entry itself; a kernel's own reasons count from 1.
BAD_SIZE, NO_MEMORY, HOST_FAILED = -1, -2, -3
