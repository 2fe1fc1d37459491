"""LLVM IR text → object bytes, in this process. The only module that touches llvmlite.

LLVM's own vectorisers and unroller are off: legalize has done that work. LLVM unrolls only the k
loops that a schedule annotates (ir.K_UNROLL). Runs in a worker process (llvm_worker.py) or, for one
job, in the compiler's process.
"""

from __future__ import annotations

import os
from functools import lru_cache

import llvmlite
import llvmlite.binding as llvm

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
llvm.initialize_native_asmparser()

# a child forked while another thread is inside LLVM would find llvmlite's lock held forever
_lock = llvm.ffi.lib._lock
os.register_at_fork(
    before=_lock.__enter__, after_in_parent=_lock.__exit__, after_in_child=_lock.__exit__
)

VERSION = f"llvmlite {llvmlite.__version__}, LLVM {'.'.join(map(str, llvm.llvm_version_info))}"


def host() -> tuple[str, str, str]:
    """Triple, CPU name and feature list of the host."""
    features = llvm.get_host_cpu_features().flatten()
    return llvm.get_default_triple(), llvm.get_host_cpu_name(), features


@lru_cache(maxsize=16)
def _machine(triple: str, cpu: str, features: str, level: int) -> llvm.TargetMachine:
    target = llvm.Target.from_triple(triple)
    return target.create_target_machine(
        cpu=cpu, features=features, opt=level, reloc="pic", codemodel="small"
    )


def compile_text(text: str, triple: str, cpu: str, features: str, level: int) -> bytes:
    """Parse, verify, optimise and emit one module; RuntimeError has LLVM's message."""
    machine = _machine(triple, cpu, features, level)
    module = _optimised(text, machine, triple, level)
    return machine.emit_object(module)


def assembly(text: str, triple: str, cpu: str, features: str, level: int) -> str:
    machine = _machine(triple, cpu, features, level)
    return machine.emit_assembly(_optimised(text, machine, triple, level))


def _optimised(text: str, machine: llvm.TargetMachine, triple: str, level: int) -> llvm.ModuleRef:
    module = llvm.parse_assembly(f'target triple = "{triple}"\n{text}')
    module.data_layout = str(machine.target_data)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = options.slp_vectorization = False
    options.loop_unrolling = options.loop_interleaving = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module
