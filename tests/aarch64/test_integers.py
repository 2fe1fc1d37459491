"""Quantised and narrow types as AArch64 code under qemu: without dot products, with `sdot` and
`udot`, and with `usdot`; numpy and unoptimised ONNX Runtime are the references.

Sums of integers are exact: operators on integers bit for bit, networks between pairs of
QuantizeLinear and DequantizeLinear layer by layer, within one step of their quantiser.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import compose

from benchmarks.quantised.cut import cut, given, quantised_values, values_of
from ingot import api, pipeline
from ingot.graph import interp as graph_interp
from ingot.kernels.build import program_of
from ingot.runtime.package import Package
from tests.aarch64.emulated import Plans
from tests.fuzz.quantised import network
from tests.models import test_bf16_dots as bf16
from tests.models import test_weight_only as weight_only
from tests.ops import integer_shapes
from tests.ops.compiled_nodes import model, node
from tests.ops.test_integer_products import KINDS, MAKERS, Case, expected, name_of
from tests.schedule.matrix_instructions import MATRICES, Matrix

pytestmark = pytest.mark.long
TARGETS = ("aarch64", "aarch64+dotprod", "aarch64+dotprod+i8mm")
SEEDS = range(2000, 2006)  # of each operator and pair of types
NETWORKS = range(3000, 3012)
LARGEST = 30_000_000  # multiplications of a benchmark's shape that takes qemu no minute
HALVES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Job:
    """A plan, and what to assert of its outputs."""

    package: Package
    feeds: Arrays
    check: Callable[[Arrays], None]


def together(models: Sequence[onnx.ModelProto]) -> onnx.ModelProto:
    """One model of all; the names of the one with number 3 begin with `m3_`."""
    first, *others = (compose.add_prefix(m, f"m{i}_") for i, m in enumerate(models))
    for other in others:
        for part in ("node", "input", "output", "initializer"):
            getattr(first.graph, part).extend(getattr(other.graph, part))
    return first


def compiled(proto: onnx.ModelProto, target: str) -> Package:
    return pipeline.run_stages(proto.SerializeToString(), api.make_session(target))


# --- operators ----------------------------------------------------------------------------------


def products(make: Callable, kinds: tuple[type, type], target: str) -> Job:
    cases: list[Case] = [make(np.random.default_rng(seed), kinds) for seed in SEEDS]
    wants = [expected(case) for case in cases]
    wants = [case.want if want is None else want for case, want in zip(cases, wants)]
    cases, wants = zip(*((c, w) for c, w in zip(cases, wants) if w is not None))  # type: ignore
    proto = together([case.model() for case in cases])

    def check(got: Arrays) -> None:
        for number, (case, want) in enumerate(zip(cases, wants)):
            np.testing.assert_array_equal(got[f"m{number}_y"], want, str(case.attrs), strict=True)

    feeds = {f"m{i}_i0": case.inputs[0] for i, case in enumerate(cases)}
    return Job(compiled(proto, target), feeds, check)


def networks(target: str) -> Job:
    """Depthwise and grouped convolutions, tables, pools, concats and the rest between pairs."""
    models, feeds, wants = [], {}, {}
    for number, seed in enumerate(NETWORKS):
        proto, x = network(np.random.default_rng(seed))
        values = values_of(proto, quantised_values(proto), x)
        models.append(cut(proto, values))
        names = {value.name for value in models[-1].graph.input}
        every = {**x, **given(values)}
        feeds |= {f"m{number}_{name}": every[name] for name in names}
        wants |= {f"m{number}_{name}": array for name, array in values.items()}

    def check(got: Arrays) -> None:
        for name, want in wants.items():
            apart = np.abs(got[name].astype(int) - want)
            assert apart.max(initial=0) <= 1 and np.mean(apart != 0) < 0.01, name

    return Job(compiled(together(models), target), feeds, check)


def packed_weights(target: str) -> Job:
    cases = weight_only.CASES
    models = [onnx.load_from_string(case.model()) for case in cases]
    feeds, wants = {}, {}
    for number, case in enumerate(cases):
        feeds[f"m{number}_x"] = x = case.rows_of()
        wants[f"m{number}_y"] = case.expected(x)
    for number, form in enumerate(weight_only.FORMS, len(models)):
        data, real = weight_only.dequantised(*form)
        models.append(onnx.load_from_string(data))
        feeds[f"m{number}_x"] = x = np.random.default_rng(1).standard_normal((3, len(real)), "f4")
        wants[f"m{number}_y"] = x.astype(np.float64) @ real

    def check(got: Arrays) -> None:
        for name, want in wants.items():
            weight_only.assert_close(got[name], want)

    return Job(compiled(together(models), target), feeds, check)


# --- shapes of the micro-benchmarks -------------------------------------------------------------


def shapes(kind: str, target: str) -> Job:
    small = [s for s in integer_shapes.SHAPES if s.kind == kind and s.products <= LARGEST]
    number = TARGETS.index(target)
    made = integer_shapes.suite(small, KINDS[(integer_shapes.NAMES.index(kind) + number) % 3])
    session = api.make_session(target)
    session.store = made.store

    def check(got: Arrays) -> None:
        for shape, (name, want) in zip(small, made.wants.items(), strict=True):
            assert np.array_equal(got[name], want), shape

    return Job(pipeline.run_stages(made.graph, session), made.feeds, check)


# --- f16 and bf16 -------------------------------------------------------------------------------


def halves(name: str) -> Job:
    """GEMMs of any number of rows, and a convolution: within a rounding of the exact result."""
    half, rng = HALVES[name], np.random.default_rng(0)
    w, window = (rng.standard_normal(s).astype(half) for s in ((130, 75), (9, 5, 3, 3)))
    feeds = {f"x{n}": rng.standard_normal((n, 130)).astype(half) for n in (1, 2, 7, 33)}
    feeds["image"] = rng.standard_normal((1, 5, 9, 8)).astype(half)
    wants = {f"y{n[1:]}": x.astype(float) @ w.astype(float) for n, x in feeds.items() if x.ndim < 3}
    taps = {"pads": [1, 1, 1, 1], "strides": [1, 1], "dilations": [1, 1], "group": 1}
    wide = feeds["image"].astype(float), window.astype(float)
    wants["features"] = integer_shapes.convolved(*wide, taps)
    nodes = [node("MatMul", [x, "w"], [f"y{x[1:]}"]) for x in feeds if x != "image"]
    nodes.append(node("Conv", ["image", "window"], ["features"], pads=[1, 1, 1, 1]))
    inputs = {n: (half, x.shape) for n, x in feeds.items()}
    proto = model(nodes, inputs, {"w": w, "window": window})

    def check(got: Arrays) -> None:
        step = {"f16": 2.0**-11, "bf16": 2.0**-8}[name]
        for key, want in wants.items():
            assert got[key].dtype == half
            assert (np.abs(got[key].astype(float) - want) <= step * np.abs(want) + 1e-4).all(), key

    return Job(compiled(proto, "aarch64"), feeds, check)


def bf16_dots(number: int) -> Job:
    """Small integers, whose sums are exact in any order."""
    build, shape = bf16.CASES[number]
    graph, store, package = bf16.lowered(build, bf16.NEON)
    x = bf16.small_integers(1, shape)
    (want,) = graph_interp.run(graph, store, [x])

    def check(got: Arrays) -> None:
        np.testing.assert_array_equal(*got.values(), want)

    return Job(package, {"x": x}, check)


# --- matrix instructions ------------------------------------------------------------------------


def matrix(m: Matrix) -> Job:
    """A schedule of one's own; small integers are exact in bf16 too."""
    kernel, sch = m.tensorized(6, 10, 3)
    session = api.make_session(f"aarch64+{m.feature}")
    stages = [stage.name for stage in session.stages]
    first = stages[stages.index("schedule") + 1]
    rng, ends = np.random.default_rng(0), {"i8": (-128, 128), "u8": (0, 256), "bf16": (-8, 9)}
    x = rng.integers(*ends[m.a], (6, 3 * m.terms))
    w = rng.integers(*ends[m.b], (10, 3 * m.terms))
    want = x @ w.T
    feeds = {p.name: a.astype(p.dtype.numpy) for p, a in zip(kernel.params, (x, w, 0 * want))}

    def check(got: Arrays) -> None:
        np.testing.assert_array_equal(got["Y"], want)

    package = pipeline.run_stages(program_of(sch.kernel), session, first)
    return Job(package, feeds, check)


# --- all of them in one process -----------------------------------------------------------------


def jobs() -> Iterator[tuple[str, Callable[[], Job]]]:
    for target in TARGETS:
        for make in MAKERS:
            for kinds in KINDS:
                label = f"{make.__name__}-{name_of(kinds)}-{target}"
                yield label, lambda m=make, k=kinds, t=target: products(m, k, t)
        yield f"networks-{target}", lambda t=target: networks(t)
        yield f"packed_weights-{target}", lambda t=target: packed_weights(t)
        for kind in integer_shapes.NAMES:
            yield f"{kind}-{target}", lambda k=kind, t=target: shapes(k, t)
    for name in HALVES:
        yield name, lambda n=name: halves(n)
    for each in MATRICES:
        yield each.word, lambda m=each: matrix(m)
    for number in range(len(bf16.CASES)):
        yield f"bf16_dots-{number}", lambda n=number: bf16_dots(n)


JOBS = {re.sub(r"\W+", "_", name): job for name, job in jobs() if "large" not in name}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plans, dict[str, Job]]:
    plans = Plans(tmp_path_factory.mktemp("aarch64"))
    made = {name: make() for name, make in JOBS.items()}
    for name, job in made.items():
        plans.add(name, job.package, job.feeds)
    plans.run()
    return plans, made


@pytest.mark.parametrize("name", JOBS)
def test_exact(ran: tuple[Plans, dict[str, Job]], name: str) -> None:
    plans, made = ran
    made[name].check(plans.outputs(name))
