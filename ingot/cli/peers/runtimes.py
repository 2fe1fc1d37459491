"""The runtimes of a benchmark, by name: Ingot in several ways, its peers, the roofline probes.

In: what the command line asks for and what the model is. Out: the names to run, and why others are
skipped. support/lazy.py has the class of each name. Used by bench.py, rounds.py and benchmarks/.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

OURS = "ingot"
AGAIN = "ingot-again"  # the same build in another process: what two equal runtimes differ by
MODULE = "ingot-module"  # compiled from the torch.export file, not from ONNX
BACKEND = "ingot-backend"  # torch.compile(backend="ingot") of the torch.export file
WITHOUT_WINOGRAD = "ingot-without-winograd"
ALSO = {"again": AGAIN, "module": MODULE, "backend": BACKEND, "without-winograd": WITHOUT_WINOGRAD}
REFERENCE = "onnxruntime"  # its outputs are the reference, if it ran
CHANNELS_LAST = "torch-channels-last"
TORCH = ("torch-eager", CHANNELS_LAST, "torch-compile", "torch-freezing")
PEERS = {"onnxruntime": (REFERENCE,), "openvino": ("openvino",), "torch": TORCH}
ROOFLINE_PROBES = ("fma", "bandwidth")  # roofline_probes.py
NEEDS_TORCH = "torch cannot read ONNX: give a torch.export file with --torch"


def is_ours(name: str) -> bool:
    return name.partition("-")[0] == OURS


def is_peer(name: str) -> bool:
    return not is_ours(name) and name not in ROOFLINE_PROBES


@dataclass(frozen=True)
class Model:
    """What the choice of runtimes depends on."""

    is_torch: bool = False  # the model itself is a torch.export file
    has_torch_file: bool = False  # there is one
    has_images: bool = False  # an input has four dimensions, which channels-last is for


def choose(
    peers: Sequence[str], also: Sequence[str], model: Model
) -> tuple[list[str], dict[str, str]]:
    """The runtimes to benchmark, and why the others are skipped."""
    why = {name: reason for name in peers if (reason := _why_not(name, model))}
    names = [OURS]
    for name in also:
        reason = _why_not_also(name, model)
        names += [] if reason else [ALSO[name]]
        why |= {ALSO[name]: reason} if reason else {}
    for peer in peers:
        names += PEERS[peer] if peer not in why else ()
    if CHANNELS_LAST in names and not model.has_images:
        names.remove(CHANNELS_LAST)
        why[CHANNELS_LAST] = "no input has four dimensions"
    return names, why


def _why_not(peer: str, model: Model) -> str:
    if find_spec(peer) is None:
        return f"not installed: pip install {peer}"
    if peer == "torch":
        return "" if model.has_torch_file else NEEDS_TORCH
    return "it cannot read a torch.export file" if model.is_torch else ""


def _why_not_also(name: str, model: Model) -> str:
    if name == "module" and model.is_torch:
        return f"the model is a torch.export file: {OURS} is compiled from it"
    if name in ("module", "backend"):
        if find_spec("torch") is None:
            return "not installed: pip install torch"
        return "" if model.has_torch_file else NEEDS_TORCH
    return ""
