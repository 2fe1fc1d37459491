"""One architecture, compiled and compared with eager.

    case   "name size way": size small or large
    way    compile (torch.compile), resize (the same, then a call with other sizes, for which Dynamo
           makes dimensions dynamic), export (torch.export)

In: a case's name. Out: "passed, 1 graph", "torch refuses: …" where eager or torch.export
fails, or what went wrong. Called by the tests, and in worker processes
(tests/conformance/workers.py).
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tests.torch.architectures import audio, text, vision
from tests.torch.architectures.architecture import Architecture

TABLE: dict[str, Architecture] = {**text.TABLE, **vision.TABLE, **audio.TABLE}
RTOL, ATOL = 1e-3, 1e-4  # of f32 versus eager
SIZES = ("small", "large")
PASSED, REFUSED = "passed", "torch refuses"


def names(size: str) -> list[str]:
    return [f"{name} {size} {way}" for name in TABLE for way in WAYS]


def prepare(runtime: str) -> None:
    import ingot.torch  # noqa: F401 registers the back end

    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)


def run_case(case: str, runtime: str) -> str:
    name, size, way = case.rsplit(" ", 2)
    try:
        return WAYS[way](TABLE[name], size)
    except Exception as error:
        return describe(error)


def describe(error: BaseException) -> str:
    """The start of the error, without lines that have paths of this machine."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    count = 3 if isinstance(error, AssertionError) else 1
    return f"{type(error).__name__}: {' '.join(lines[:count])}"[:250]


# --- torch.compile --------------------------------------------------------------------------------


def compiled(about: Architecture, size: str) -> str:
    model = about.build(size)
    given = about.arguments(model)
    with surroundings(about):
        wanted = tensors_of(model(**given))
        theirs = len(graphs(model, given, lambda module, inputs: module)[1])
        found, own = graphs(model, given, ingot_backend())
    check(found, wanted, about)
    if len(own) > theirs:
        return f"breaks: {len(own)} graphs, eager's back end has {theirs}"
    return f"{PASSED}, {theirs} graph{'s' * (theirs != 1)}"


def ingot_backend() -> Callable[..., Any]:
    from ingot.torch import ingot

    return ingot


def graphs(
    model: torch.nn.Module, given: dict[str, Any], backend: Callable[..., Any]
) -> tuple[list[torch.Tensor], list[torch.fx.GraphModule]]:
    """The results of a model compiled by a back end, and the graphs that the back end was given."""
    seen = []

    def counting(module: torch.fx.GraphModule, inputs: Any) -> Any:
        seen.append(module)
        return backend(module, inputs)

    torch._dynamo.reset()
    torch.manual_seed(2)
    found = torch.compile(model, backend=counting)(**given)
    torch._dynamo.reset()
    return tensors_of(found), seen


def resized(about: Architecture, size: str) -> str:
    """A second call, with one more row and shorter texts."""
    model = about.build(size)
    given = about.arguments(model)
    other = other_sizes(given)
    fast = torch.compile(model, backend=ingot_backend())
    with surroundings(about):
        try:
            wanted = tensors_of(model(**other))
        except Exception as error:
            return f"{REFUSED}: {describe(error)}"
        fast(**given)
        torch.manual_seed(2)
        check(tensors_of(fast(**other)), wanted, about)
    return PASSED


def other_sizes(given: dict[str, Any]) -> dict[str, Any]:
    """One more row, and texts without their last token."""
    texts = {"input_ids", "decoder_input_ids"}
    if "input_ids" in given:
        texts.add("attention_mask")
    found = {}
    for name, value in given.items():
        if isinstance(value, torch.Tensor):
            value = torch.cat([value, value[:1]])
            value = value[:, :-1].contiguous() if name in texts else value
        found[name] = value
    return found


# --- torch.export ---------------------------------------------------------------------------------


def exported(about: Architecture, size: str) -> str:
    import ingot

    model: Any = about.build(size)
    if about.wrap != "Cached":
        for part in model.modules():
            if hasattr(part, "config"):
                part.config.use_cache = False  # a cache among the results is no pytree
    given = about.arguments(model)
    with surroundings(about):
        try:
            program = torch.export.export(model, (), given)
            wanted = tensors_of(program.module()(**given))
        except Exception as error:
            return f"{REFUSED}: {describe(error)}"
        found = tensors_of(ingot.compile(program)(**given))
    check(found, wanted, about)
    return PASSED


# --- comparing ------------------------------------------------------------------------------------


@contextmanager
def surroundings(about: Architecture) -> Iterator[None]:
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=about.autocast):
        torch.manual_seed(2)
        yield


def tensors_of(found: Any) -> list[torch.Tensor]:
    """The tensors of a result, those of caches included."""
    layers = getattr(found, "layers", None)
    if layers is not None and not isinstance(found, torch.Tensor):
        return [t for layer in layers for t in tensors_of(list(vars(layer).values()))]
    if isinstance(found, dict):
        return [t for value in found.values() for t in tensors_of(value)]
    if isinstance(found, tuple | list):
        return [t for value in found for t in tensors_of(value)]
    return [t for t in pytree.tree_leaves(found) if isinstance(t, torch.Tensor)]


def check(found: list[torch.Tensor], wanted: list[torch.Tensor], about: Architecture) -> None:
    assert len(found) == len(wanted), f"{len(found)} results, not {len(wanted)}"
    assert wanted, "there are no tensors in the result"
    for have, want in zip(found, wanted):
        assert have.dtype == want.dtype, f"{have.dtype}, not {want.dtype}"
        rtol, atol = (0.05, 0.05) if about.autocast else (RTOL, ATOL)
        torch.testing.assert_close(have, want, rtol=rtol, atol=atol, equal_nan=True)


WAYS: dict[str, Callable[[Architecture, str], str]] = {
    "compile": compiled, "resize": resized, "export": exported,
}  # fmt: skip
