"""The kernel cache: objects by the text they were compiled from, shared by all models.

In: module texts and the machine. Out: objects. Called by codegen/llvm.py, around the worker
processes. The key holds all that an object depends on: the text, the machine's full feature list
and optimisation level, LLVM's version and the module that drives LLVM. Other parts of Ingot change
an object only through its text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

from ingot.codegen import llvm_object
from ingot.codegen.workers import Job, MachineSpec
from ingot.support.cache_folder import open_folder
from ingot.support.progress import LOG

Compile = Callable[[Sequence[Job]], list[bytes]]


def compile_cached(jobs: Sequence[Job], machine: MachineSpec, compile_jobs: Compile) -> list[bytes]:
    """The object of every job, in order; `compile_jobs` compiles those that are not cached."""
    folder = open_folder("kernels")
    if folder is None:
        return compile_jobs(jobs)
    keys = [key_of(job.text, machine) for job in jobs]
    found = {key: data for key in keys if (data := folder.get(key)) is not None}
    missing = {key: job for key, job in zip(keys, jobs) if key not in found}
    LOG.debug("kernel cache: %d of %d objects", len(jobs) - len(missing), len(jobs))
    made = compile_jobs(list(missing.values())) if missing else []
    for key, data in zip(missing, made):
        folder.put(key, data)
    found |= zip(missing, made)
    return [found[key] for key in keys]


def key_of(text: str, machine: MachineSpec) -> str:
    context = {
        "machine": asdict(machine),
        "llvm": llvm_object.VERSION,
        "compiler": _compiler_digest(),
    }
    digest = hashlib.blake2b(json.dumps(context, sort_keys=True).encode(), digest_size=20)
    digest.update(text.encode())
    return digest.hexdigest()


@lru_cache(maxsize=1)
def _compiler_digest() -> str:
    return hashlib.blake2b(Path(llvm_object.__file__).read_bytes(), digest_size=16).hexdigest()
