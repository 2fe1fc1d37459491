"""An example back end: a made-up accelerator with a scratchpad and a 4 x 4 x 4 matrix instruction.

    pip install ingot-systolic
    ingot.compile(model, target="systolic")        64 KiB of scratchpad
    ingot.compile(model, target="systolic:4096")   of other size in bytes

`schedule.py` is its default schedule, `backend.py` its pipeline, `device.py` the machine: Ingot's
interpreter, which runs the instruction by its meaning. Ingot finds all through entry points.
"""
