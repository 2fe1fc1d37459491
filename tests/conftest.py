"""For the whole suite: whatever any test builds and verifies must survive a trip through text."""

from __future__ import annotations

import os
import signal
import tempfile

os.environ["INGOT_WORK_PER_THREAD_US"] = "0"  # small models must meet their second thread here
# objects of equal kernels are compiled once for all tests; models are not cached, so that every
# test runs every stage
os.environ["INGOT_CACHE_DIR"] = os.path.join(tempfile.gettempdir(), f"ingot-tests-{os.getuid()}")
os.environ["INGOT_CACHE_MODELS"] = "0"
# child processes share compiled modules, and leave none in the tree
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ["PYTHONPYCACHEPREFIX"] = os.environ["INGOT_CACHE_DIR"] + "-bytecode"
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job; children inherit
    signal.signal(signal.SIGINT, signal.default_int_handler)

from ingot.graph import text as graph_text
from ingot.graph import verify as graph_verify
from ingot.graph.ir import Graph
from ingot.loops import ir as loops
from ingot.loops import script_parse, script_print
from ingot.loops import verify as loops_verify
from ingot.program import ir as program
from ingot.program import text as program_text
from ingot.program import verify as program_verify

_seen: set[loops.Kernel] = set()  # stages pass many kernels on unchanged


def graph_round_trip(graph: Graph) -> None:
    text = graph_text.show(graph)
    assert graph_text.parse(text) == graph, f"graph changed on its way through text:\n{text}"


def kernel_round_trip(kernel: loops.Kernel) -> None:
    if kernel in _seen:
        return
    text = script_print.show(kernel)
    assert script_parse.parse(text) == kernel, f"kernel changed on its way through text:\n{text}"
    _seen.add(kernel)


def program_round_trip(value: program.Program) -> None:
    """Kernels have a trip of their own; here they are left out of the text."""
    bare = program.replace(value, kernels=())
    text = program_text.show(bare)
    assert program_text.parse(text) == bare, f"program changed on its way through text:\n{text}"


graph_verify.HOOKS.append(graph_round_trip)
loops_verify.HOOKS.append(kernel_round_trip)
program_verify.HOOKS.append(program_round_trip)
