"""The cases: PyTorch's own samples of its operators (op_db), each a small module.

    entry   a row of op_db: an operator with samples; "nn.functional.conv2d", "div.floor_rounding"
    case    "entry dtype index": one sample of it

In: a case's name. Out: "passed", "absent" (torch has no such sample), or what went wrong. A sample
goes through export, import and compilation, and is compared with eager by the defaults of
torch.testing.assert_close. Called in worker processes (tests/conformance/workers.py).
"""

from __future__ import annotations

import contextlib
import random
import warnings
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from tests.conformance.records import PASSED
from tests.conformance_torch import own_samples
from tests.conformance_torch.entries import COUNTS, DTYPES, RANDOM, UNDEFINED, entries

ABSENT = "absent"
INTERPRETER = "interpreter"  # a runtime: the graph is interpreted, no code is generated


class Call(torch.nn.Module):
    """A call of an operator, whose tensors are the inputs."""

    def __init__(self, function: Any, spec: pytree.TreeSpec, leaves: list[Any]) -> None:
        super().__init__()
        self.function, self.spec, self.fixed = function, spec, leaves

    def forward(self, *tensors: torch.Tensor) -> Any:
        given = iter(tensors)
        leaves = [next(given) if isinstance(v, Hole) else v for v in self.fixed]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return self.function(*args, **kwargs)


class Hole:
    """The place of a tensor among the arguments."""


def prepare(runtime: str) -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)


def names() -> list[str]:
    return [f"{e} {d} {i}" for e in entries() for d in dtypes_of(e) for i in range(COUNTS[d])]


def dtypes_of(entry: str) -> list[str]:
    info = entries()[entry]
    if isinstance(info, own_samples.Own):
        return [d for d in DTYPES if d in info.dtypes]
    return [d for d, kind in DTYPES.items() if kind in info.supported_dtypes("cpu")]


@cache
def samples(entry: str, dtype: str) -> list[Any]:
    """The first samples: (function, args, kwargs)."""
    info = entries()[entry]
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    if isinstance(info, own_samples.Own):
        return list(islice(info.samples(DTYPES[dtype]), COUNTS[dtype]))
    made = info.sample_inputs("cpu", DTYPES[dtype], requires_grad=False)
    found = list(made)[: COUNTS[dtype]]  # all: a generator that is left open holds torch's modes
    return [(info.op, (s.input, *s.args), dict(s.kwargs)) for s in found]


def run_case(name: str, runtime: str) -> str:
    entry, dtype, index = name.rsplit(" ", 2)
    try:
        found = samples(entry, dtype)
    except Exception as error:
        return f"no samples: {error}"[:200]
    if int(index) >= len(found):
        return ABSENT
    torch.manual_seed(1)
    try:
        compare(entry, runtime, *found[int(index)])
    except Exception as error:
        return describe(error)
    return PASSED


def describe(error: Exception) -> str:
    """One line of the error, without what changes from run to run."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    kind = type(error).__name__
    text = " ".join(lines[:3] if kind == "AssertionError" else lines[:2])
    return f"{kind}: {text}"[:300]


def compare(entry: str, runtime: str, function: Any, args: tuple, kwargs: dict[str, Any]) -> None:
    leaves, spec = pytree.tree_flatten((args, kwargs))
    tensors = [v for v in leaves if isinstance(v, torch.Tensor)]
    fixed = [Hole() if isinstance(v, torch.Tensor) else v for v in leaves]
    module = Call(function, spec, fixed).eval()
    with torch.no_grad():
        wanted = module(*[t.clone() if entry not in KEEPS_STRIDES else t for t in tensors])
        found = call(module, tensors, runtime)
    pairs = zip(pytree.tree_leaves(wanted), found, strict=True)
    for want, have in pairs:
        if not isinstance(want, torch.Tensor):
            torch.testing.assert_close(have, want)
            continue
        assert have.shape == want.shape, f"shape {tuple(have.shape)}, not {tuple(want.shape)}"
        assert have.dtype == want.dtype, f"{have.dtype}, not {want.dtype}"
        if entry not in RANDOM | UNDEFINED:
            torch.testing.assert_close(have, want, equal_nan=True, check_stride=False)


KEEPS_STRIDES = frozenset({"as_strided", "as_strided.partial_views"})


def call(module: Call, tensors: list[torch.Tensor], runtime: str) -> list[Any]:
    """The module through Ingot: its results as a flat list."""
    with contextlib.suppress(AttributeError):
        torch._dynamo.reset()
    program = torch.export.export(module, tuple(tensors), strict=False)
    if runtime == INTERPRETER:
        return interpreted(program, tensors)
    return compiled(program, tensors)


def interpreted(program: torch.export.ExportedProgram, tensors: list[torch.Tensor]) -> list[Any]:
    """By the graph interpreter: no code is generated."""
    from ingot.frontends.torch.tensors import to_array, to_tensor
    from ingot.frontends.torch.walker import import_model
    from ingot.graph import interp
    from ingot.graph.store import ConstantStore
    from ingot.support.abi import RANDOM_KEY

    store = ConstantStore()
    graph = import_model(program, store)
    arrays = [to_array(t.contiguous()) for t in tensors]
    given = iter(arrays)
    key = np.array([7, 0], np.uint64)
    inputs = [key if v.name == RANDOM_KEY else next(given) for v in graph.inputs]
    results = interp.run(graph, store, inputs)
    return [to_tensor(np.array(r)) for r in results]


def compiled(program: torch.export.ExportedProgram, tensors: list[torch.Tensor]) -> list[Any]:
    import ingot

    exe = ingot.compile(program, threads=1)
    return pytree.tree_leaves(exe(*tensors))
