"""The binary contract between emitted code and the runtime: field offsets in bytes, 8 a field.

The entry is `i32 run(ctx*)`; each thread of a call has a ctx of its own. docs/program.md explains.
"""

from __future__ import annotations

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
    "profile": 104,  # this thread's PROFILE records, one a launch; only read by profiled entries
}
CTX_BYTES = 128

# `done`: how many parts of launches were done since the call began; FAILED and more: leave. Threads
# sleep on its low half, and say so in `parked`
SYNC = {"done": 0, "parked": 8}
SYNC_BYTES = 64
FAILED = 1 << 48
# after it, a word for each thread, on a line of its own: the number of the launch last begun, and
# in the low bits how many parts of the thread's share of it are taken. Zero when a call begins.
CLAIM_BYTES = 64
CLAIM_BITS = 8

ERROR = {"launch": 0, "reason": 8, "value0": 16, "value1": 24}  # reason 0: no error
ERROR_BYTES = 64

SERVICES = {"park": 0, "wake": 8, "alloc": 16, "grow": 24, "host": 32}
# private to the support object: what it asks of the operating system
SYSTEM = {"syscall": 40, "futex": 48, "aligned_alloc": 56, "free": 64, "sched_yield": 72}
SERVICES_BYTES = 128

# a parked worker's mailbox: command and finished count jobs, each on a cache line of its own. Who
# raises `taken` to a job's number has it: the worker, to do it, or its caller, to withdraw it
SLOT = {"command": 0, "finished": 64, "parked": 128, "stop": 132, "caller_parked": 136,
        "claimed": 140, "entry": 144, "ctx": 152, "services": 160, "taken": 168}  # fmt: skip
SLOT_BYTES = 192

# the process's workers: how many there are, then the address of each mailbox
POOL = {"count": 0, "slots": 8}

# a call: the pool, how many workers it would like, the entry, the first of its ctxs (CTX_BYTES
# apart); filled in by the call: the size of its team, and the mailboxes of those it claimed
GANG = {"pool": 0, "wanted": 8, "entry": 16, "ctx": 24, "team": 32, "slots": 40}

# what a builtin function `door` reads (codegen/llvm_door.py): a gang whose memory is ready, what
# the arrays must be, and what of Python's it needs. It refuses where the process has forked
# since it was born. `is_short`: workers were lacking, and there may be more of them (`limit`).
DOOR = {"forks": 0, "born": 8, "is_short": 16, "limit": 24, "gang": 32, "inputs": 40,
        "outputs": 48, "array_type": 56, "none": 64, "make": 72, "call": 80, "new_list": 88,
        "set_item": 96, "incref": 104, "decref": 112, "save": 120, "restore": 128, "number": 136,
        "ports": 144}  # fmt: skip
# of each input, then of each output: its element type (an output: the arguments that make it), the
# place for its address, its sizes
DOOR_PORT = {"what": 0, "place": 8, "rank": 16, "shape": 24}
DOOR_PORT_BYTES = 32

# of a numpy array, in bytes; 32 bits: rank, flags. The same since its first version; checked
# before it is relied on
ARRAY = {"type": 8, "data": 16, "rank": 24, "shape": 32, "dtype": 56, "flags": 64}
ARRAY_IS_PLAIN = 0x501  # contiguous, aligned, writeable

# cycles a thread spent in a launch, and in barriers between it and the next
PROFILE = {"busy": 0, "wait": 8}
PROFILE_BYTES = 16

DYNAMIC = {"data": 0, "rows": 8, "capacity": 16}
DYNAMIC_BYTES = 24

ALIGNMENT = 64  # of arenas, scratch, constants and every buffer placed in them

# reasons the entry itself gives, beside a kernel's own (which count from 1)
BAD_SIZE, NO_MEMORY = -1, -2
