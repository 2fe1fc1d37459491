"""Lazy imports: modules that need a heavy library, by a short name. The only dynamic import besides
support/plugins.py, which loads entry points of other packages.

`import ingot` imports none of numpy, onnx, torch and llvmlite; `load("onnx")` imports when needed.
"""

from __future__ import annotations

import importlib
from typing import Any

from ingot.support.errors import IngotError
from ingot.support.system import require_linux

TABLE: dict[str, str] = {
    "ingot.compile": "ingot.api:compile",  # the public names: ingot/__init__.py
    "ingot.load": "ingot.api:load",
    "ingot.verify": "ingot.inspect.verify:verify",
    "ingot.Executable": "ingot.runtime.executable:Executable",
    "ingot.State": "ingot.runtime.state:State",
    "ingot.IngotError": "ingot.support.errors:IngotError",
    "ingot.Options": "ingot.support.options:Options",
    "ingot.kernels": "ingot.kernels",
    "ingot.kernel": "ingot.kernels:kernel",
    "ingot.KernelFunction": "ingot.kernels:KernelFunction",
    "ingot.Schedule": "ingot.kernels:Schedule",
    "onnx": "ingot.frontends.onnx.walker:import_model",
    "onnx.loading": "ingot.frontends.onnx.loading",
    "onnx.outputs": "ingot.frontends.onnx.chosen_outputs:choose_outputs",
    "torch.import": "ingot.frontends.torch.walker:import_model",
    "torch.tensors": "ingot.frontends.torch.tensors",
    "torch.pytrees": "ingot.frontends.torch.pytrees",
    "torch.model": "ingot.frontends.torch.export_module:fx_model",
    "torch.identity": "ingot.frontends.torch.digest:identity",
    "torch.weights": "ingot.frontends.torch.weights:ModuleWeights",
    "torch.mixed": "ingot.torch.mixed_module:mixed_module",
    "torch.dim_names": "ingot.frontends.torch.walker:dim_names",
    "codegen.llvm": "ingot.codegen.llvm",
    "schedule.table": "ingot.schedule.table",
    "legalize.program": "ingot.legalize.program",
    "backends.map_kernels": "ingot.backends.map_kernels",
    "pipeline": "ingot.pipeline",
    "refresh": "ingot.refresh:refreshed",
    "shapes": "ingot.shapes",
    "build_requests": "ingot.build_requests",
    "kernels": "ingot.kernels",
    "kernels.hooks": "ingot.kernels.hooks",
    "runtime.html": "ingot.runtime.html",
    "graph.html": "ingot.graph.html:graph_html",
    "graph.show": "ingot.graph.text:show",
    "loops.script": "ingot.loops.script_print",
    "cli.compile": "ingot.cli.compile:compile_command",
    "cli.check": "ingot.cli.check:check_command",
    "cli.facts": "ingot.cli.facts",
    "cli.run": "ingot.cli.run:run_command",
    "cli.bench": "ingot.cli.bench:bench_command",
    "cli.verify": "ingot.cli.verify:verify_command",
    "cli.profile": "ingot.cli.profile:profile_command",
    "cli.show": "ingot.cli.show:show_command",
    "cli.doctor": "ingot.cli.doctor:doctor_command",
    "cli.cache": "ingot.cli.cache:cache_command",
    "cli.machine": "ingot.cli.machine",
    "cli.measure": "ingot.cli.measure",
    "support.bar": "ingot.support.bar",
    "cli.terminal": "ingot.cli.terminal",
    "oracle.onnxruntime": "ingot.inspect.onnx_oracle:values",
    "oracle.torch": "ingot.inspect.torch_oracle:values",
    "oracle.one_node": "ingot.inspect.onnx_oracle:one_node",
    "peer.ingot": "ingot.cli.peers.with_ingot:Runtime",
    "peer.ingot-again": "ingot.cli.peers.with_ingot:Runtime",
    "peer.ingot-module": "ingot.cli.peers.with_ingot:Module",
    "peer.ingot-without-winograd": "ingot.cli.peers.with_ingot:WithoutWinograd",
    "peer.ingot-backend": "ingot.cli.peers.with_torch:IngotBackend",
    "peer.onnxruntime": "ingot.cli.peers.with_onnxruntime:Runtime",
    "peer.openvino": "ingot.cli.peers.with_openvino:Runtime",
    "peer.torch-eager": "ingot.cli.peers.with_torch:Eager",
    "peer.torch-channels-last": "ingot.cli.peers.with_torch:ChannelsLast",
    "peer.torch-compile": "ingot.cli.peers.with_torch:Compiled",
    "peer.torch-freezing": "ingot.cli.peers.with_torch:Frozen",
    "peer.fma": "ingot.cli.peers.roofline_probes:FmaProbe",
    "peer.bandwidth": "ingot.cli.peers.roofline_probes:BandwidthProbe",
}

_PACKAGES = {
    name: name for name in ("onnx", "torch", "llvmlite", "onnxruntime", "openvino", "rich")
}


def load(name: str) -> Any:
    """The module, or the attribute of one, that `TABLE` names."""
    try:
        module_name, _, attribute = TABLE[name].partition(":")
    except KeyError:
        raise KeyError(f"{name!r} is not in ingot.support.lazy.TABLE: {sorted(TABLE)}") from None
    if name != "ingot.IngotError":
        require_linux()
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        package = _PACKAGES.get((error.name or "").partition(".")[0])
        if package is None:
            raise
        raise IngotError(
            "bad-option",
            f"{name} needs the package {package}, which is not installed",
            hint=f"pip install {package}",
        ) from error
    return getattr(module, attribute) if attribute else module
