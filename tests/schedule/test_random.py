"""Random sequences of primitives: whatever is not refused keeps the kernel's meaning."""

import random

import pytest

from ingot.arith import expr as arith
from ingot.loops import ir
from ingot.loops.verify import verify
from ingot.schedule import Schedule, replay
from ingot.support.errors import IngotError
from tests.schedule.common import (
    assert_same,
    backwards,
    conv1d,
    cumsum,
    elementwise,
    matmul,
    softmax,
)

n = arith.Var("n")
SIZE = (ir.Size("n", 1),)
KERNELS = {
    "elementwise": (lambda: elementwise(6, 5), {}),
    "matmul": (lambda: matmul(5, 6, 3), {}),
    "matmul, symbolic": (lambda: matmul(n, 6, 3, SIZE), {"n": 5}),
    "softmax": (lambda: softmax(4, 5), {}),
    "softmax, symbolic": (lambda: softmax(3, n, SIZE), {"n": 5}),
    "conv1d": (lambda: conv1d(9), {}),
    "conv1d, symbolic": (lambda: conv1d(n, 3, SIZE), {"n": 7}),
    "cumsum": (lambda: cumsum(3, 4), {}),
}
STEPS = 14


def random_step(sch: Schedule, rng: random.Random) -> None:
    blocks = sch.blocks()
    block, other = rng.choice(blocks), rng.choice(blocks)
    loops = sch.loops(block)
    if not loops:
        return
    loop, foreign = rng.choice(loops), rng.choice(sch.loops(other) or loops)
    start = rng.randrange(len(loops))
    match rng.randrange(11):
        case 0 | 1:
            sch.split(loop, *rng.choice([(None, 2), (None, 3), (2, None), (None, 2, 2)]))
        case 2 | 3:
            sch.reorder(*rng.sample(loops, rng.randint(2, len(loops)) if len(loops) > 1 else 1))
        case 4:
            sch.fuse(*loops[start : start + 2])
        case 5:
            sch.parallel(loop)
        case 6:
            sch.vectorize(loop)
        case 7:
            sch.unroll(loop)
        case 8:
            sch.compute_inline(block)
        case 9:
            sch.compute_at(block, foreign)
        case 10:
            sch.reverse_compute_at(block, foreign)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", KERNELS)
def test_random_schedules_agree_with_the_plain_kernel(name, seed):
    make, sizes = KERNELS[name]
    rng = random.Random(f"{name} {seed}")
    sch = Schedule(make())
    for _ in range(STEPS):
        before = sch.kernel
        try:
            random_step(sch, rng)
        except IngotError as error:
            assert error.code == "bad-schedule" and error.why and sch.kernel is before
    verify(sch.kernel)
    assert_same(make(), sch.kernel, **sizes)
    assert_same(make(), backwards(sch.kernel), **sizes)
    assert replay(make(), sch.trace).kernel == sch.kernel
