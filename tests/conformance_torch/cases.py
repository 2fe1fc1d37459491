"""The cases: PyTorch's own samples of its operators (op_db), each a small module.

    entry   a row of op_db: an operator with samples; "nn.functional.conv2d", "div.floor_rounding"
    case    "entry dtype index": one sample of it

In: a case's name, a runtime ("ingot", or "interpreter": no code is generated). Out: "passed",
"absent" (torch has no such sample), or what went wrong. A sample is compiled by torch.compile with
fullgraph=True and compared with eager by the defaults of torch.testing.assert_close, as are its
inputs after the call. Called in worker processes (tests/conformance/workers.py).
"""

from __future__ import annotations

import copy
import logging
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
from tests.conformance_torch.entries import COUNTS, DTYPES, UNDEFINED, entries

ABSENT = "absent"


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
    """Samples of random operators set the seed in every call, which Dynamo does not trace."""
    from torch.testing._internal import common_methods_invocations as invocations

    import ingot.torch.backend  # noqa: F401 registers it

    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)


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
    theirs, other = copy.deepcopy(tensors), copy.deepcopy(tensors)  # also their strides
    torch._dynamo.reset()
    with torch.no_grad():
        torch.manual_seed(1)
        wanted = module(*theirs)
        is_drawn = differ(wanted, module(*other)) or entry in UNDEFINED
        found = torch.compile(module, backend=BACKENDS[runtime], fullgraph=True)(*tensors)
    results, expected = pytree.tree_leaves(found), pytree.tree_leaves(wanted)
    pairs = [*zip(results, expected, strict=True), *zip(tensors, theirs)]
    for have, want in pairs:
        check(have, want, is_drawn)


def differ(a: Any, b: Any) -> bool:
    """Whether eager's own results change from call to call: they are drawn at random."""
    pairs = zip(pytree.tree_leaves(a), pytree.tree_leaves(b))
    return any(isinstance(x, torch.Tensor) and not same_bits(x, y) for x, y in pairs)


def same_bits(x: torch.Tensor, y: torch.Tensor) -> bool:
    return x.shape == y.shape and bool(torch.allclose(x, y, rtol=0, atol=0, equal_nan=True))


def check(have: Any, want: Any, is_drawn: bool) -> None:
    if not isinstance(want, torch.Tensor):
        torch.testing.assert_close(have, want)
        return
    assert have.shape == want.shape, f"shape {tuple(have.shape)}, not {tuple(want.shape)}"
    assert have.dtype == want.dtype, f"{have.dtype}, not {want.dtype}"
    if not is_drawn:
        torch.testing.assert_close(have, want, equal_nan=True)


# --- the graph interpreter in the place of compiled code ----------------------------------------


def interpreting(module: torch.fx.GraphModule, inputs: Any) -> Any:
    """A back end that generates no code."""
    from ingot.frontends.torch.aot import traced
    from ingot.torch.graph_call import GraphCall
    from tests.frontends.torch.interpreted import Interpreted

    run = traced(module, inputs, lambda model: GraphCall(model, Interpreted(model)))  # type: ignore
    return torch._dynamo.disable(run)


BACKENDS: dict[str, Any] = {"ingot": "ingot", "interpreter": interpreting}
