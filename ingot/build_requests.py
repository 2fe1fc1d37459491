"""How the sizes of a running model are built: by `ingot.compile(model, shapes=…)` in a child.

In: the arguments of an `ingot.compile(…, specialise=…)`. Out: the executable that specialises. Its
builds are those of the same call with static sizes, so they share their cache entries with it. The
child (build_worker.py) compiles into the model cache, from where the executable loads the build, so
that its calls lose no time to the compiler, not even the GIL. Called by api.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, BinaryIO, cast

from ingot import cache
from ingot.runtime.builds import Builds, Values
from ingot.runtime.executable import Executable
from ingot.runtime.specialise import Settings, SpecialisingExecutable
from ingot.support import options
from ingot.support.errors import IngotError

WORKER = "ingot.build_worker"
_SHOWN = 500  # characters of a crashed child's last messages in an error


def fixed_model(model: Any) -> Any:
    """As it is now: the working directory or the caller's buffer may change before a build."""
    if isinstance(model, bytearray | memoryview):
        return bytes(model)
    return os.path.abspath(os.fspath(model)) if isinstance(model, str | os.PathLike) else model


def check_cacheable(model: Any, kernels: Any) -> None:
    """An error if builds of this model cannot be in the model cache."""
    if kernels:
        raise _not_cacheable("a function, as in kernels=, has no digest")
    if not isinstance(model, str | bytes):
        raise _not_cacheable(f"a {type(model).__name__} has no digest")
    if options.cache_folder() is None or not options.current().cache_models:
        raise _not_cacheable("caching is off (INGOT_CACHE_DIR, INGOT_CACHE_MODELS)")


def _not_cacheable(why: str) -> IngotError:
    what = "specialise: builds of this model cannot be cached"
    hint = "give a model file or its bytes, without kernels=, and have the model cache on"
    return IngotError("bad-option", what, why=why, hint=hint)


def _not_in_cache(what: str, why: str) -> IngotError:
    why += ": time_limit_s, memory_limit_bytes, INGOT_CACHE_LIMIT_BYTES"
    return IngotError("limit", f"{what} is not in the model cache", why=why)


def specialising(
    general: Executable,
    settings: Settings,
    model: Any,
    request: cache.Request | None,
    asked: Mapping[str, Any],
) -> Executable:
    """The executable that gets builds. `request` is the general build's, `asked` the arguments of
    ingot.compile for the builds."""
    if request is None:
        raise _not_cacheable("the model's importer gives no digest")
    if not any(symbol.source == "input" for symbol in general.package.symbols):
        return general  # all sizes are static
    maker = BuildMaker(model, request, cache.external_files(request), asked)
    return SpecialisingExecutable(general, Builds(settings, general.package, maker))


class BuildMaker:
    """Finds a build in the model cache, or has it compiled into the cache. `files`: digests of the
    model's external data when the general build was made; None: that one is not in the cache."""

    def __init__(
        self,
        model: str | bytes,
        general: cache.Request,
        files: Mapping[str, str] | None,
        asked: Mapping[str, Any],
    ):
        self._model, self._general, self._files, self._asked = model, general, files, asked
        self._options = options.current()
        self._child: ChildBuild | None = None
        self._is_stopped = False

    def make(self, sizes: Values) -> Executable:
        given = {str(name): size for name, size in self._asked["shapes"].items()}
        shapes = {**given, **sizes}  # the sizes are within what the caller gave
        if self._files is None:
            raise _not_in_cache("the general build", "a limit was reached")
        with options.using(self._options):
            found = self._find(shapes)
            if found is None:
                self._compile(shapes)
                found = self._find(shapes)
        if found is None:
            raise _not_in_cache("the build", "the model has changed or a limit was reached")
        return found

    def stop(self) -> None:
        self._is_stopped = True
        child = self._child
        if child is not None:
            child.kill()

    def forget(self) -> None:
        if self._child is not None:
            self._child.forget()
        self._child = None

    def _find(self, shapes: Mapping[str, Any]) -> Executable | None:
        """The build in the cache. Its key is the general build's but for the sizes: a model file
        that was changed since has another key."""
        begin = time.perf_counter()
        request = replace(self._general, fields={**self._general.fields, "shapes": shapes})
        package = cache.lookup(request)
        if package is None:
            return None
        if cache.external_files(request) != self._files:
            what = "the model's external data has changed"
            raise IngotError("bad-model", what, hint="compile the model again")
        return Executable(package, times_s={"cache": time.perf_counter() - begin})

    def _compile(self, shapes: Mapping[str, Any]) -> None:
        path, data = (self._model, b"") if isinstance(self._model, str) else (None, self._model)
        self._child = child = ChildBuild({**self._asked, "shapes": shapes, "path": path}, data)
        if self._is_stopped:  # stop() may have missed it
            child.kill()
        try:
            child.wait()
        finally:
            self._child = None


class ChildBuild:
    """A process that compiles with the options in force here. `model` is one given as bytes, empty
    for one that the request names by its path. Request, model, reply and messages are temporary
    files: unlike the end of a pipe, a copy that a forked process holds delays nobody."""

    def __init__(self, request: Mapping[str, Any], model: bytes):
        path = os.pathsep.join(p or os.getcwd() for p in sys.path)
        self._reply, self._messages = _file(), _file()
        about = {**request, "parent": os.getpid(), "model_bytes": len(model)}
        with _file(json.dumps(about).encode() + b"\n", model) as order:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", WORKER],
                stdin=order,
                stdout=self._reply,
                stderr=self._messages,
                env=options.child_environment(PYTHONPATH=path, INGOT_DUMP_DIR=""),
                start_new_session=True,  # Ctrl-C is for the parent, which may go on
            )

    def wait(self) -> None:
        """Until it has ended; an IngotError if it failed."""
        status = self._process.wait()
        reply, messages = _content(self._reply), _content(self._messages)
        try:
            error = json.loads(reply)["error"]
        except (ValueError, KeyError):  # it wrote no reply: it crashed or was killed
            why = f"it ended with status {status}" + (messages and f": {messages[-_SHOWN:]}")
            raise IngotError("codegen-failed", "the compiling process failed", why=why) from None
        if error:
            raise IngotError("codegen-failed", error)

    def kill(self) -> None:
        self._process.kill()

    def forget(self) -> None:
        """In a forked process: the child is the parent's, never wait for it."""
        self._process.returncode = 0


def _file(*contents: bytes) -> BinaryIO:
    """A temporary file; unbuffered, so that a fork copies no half-written buffer."""
    file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
    for content in contents:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(file.fileno(), rest) :]
    file.seek(0)
    return cast(BinaryIO, file)


def _content(file: BinaryIO) -> str:
    with file:
        file.seek(0)
        return file.read().decode(errors="replace").strip()
