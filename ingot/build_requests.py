"""How the sizes of a running model are built: by `ingot.compile(model, shapes=…)` in a child.

In: the arguments of an `ingot.compile(…, specialise=…)`. Out: the executable that specialises. Its
builds are those of the same call with static sizes, so they share their cache entries with it, and
reach the executable through the model cache. Called by api.py; the child is build_worker.py.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike, fspath, path
from typing import Any

from ingot import cache
from ingot.runtime.builds import Builds, Values
from ingot.runtime.child_build import ChildBuild
from ingot.runtime.executable import Executable
from ingot.runtime.specialise import Settings, SpecialisingExecutable
from ingot.support import options
from ingot.support.errors import IngotError


def fixed_model(model: Any) -> Any:
    """As it is now: the working directory or the caller's buffer may change before a build."""
    if isinstance(model, bytearray | memoryview):
        return bytes(model)
    return path.abspath(fspath(model)) if isinstance(model, str | PathLike) else model


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
    files = cache.external_files(request)
    maker = _Maker(model, request, files, asked, options.current())
    return SpecialisingExecutable(
        general, Builds(settings, general.package, maker.find, maker.start)
    )


@dataclass(frozen=True)
class _Maker:
    """`files`: digests of the model's external data when the general build was made; None: it is
    not in the cache."""

    model: str | bytes
    general: cache.Request
    files: Mapping[str, str] | None
    asked: Mapping[str, Any]
    options: options.Options

    def find(self, sizes: Values) -> Executable | None:
        """The build in the cache. Its key is the general build's but for the sizes: a model file
        that was changed since has another key."""
        begin = time.perf_counter()
        with options.using(self.options):
            fields = {**self.general.fields, "shapes": self._shapes(sizes)}
            request = replace(self.general, fields=fields)
            package = cache.lookup(request)
            if package is None:
                return None
            if self.files is None or cache.external_files(request) != self.files:
                what = "the model's external data may have changed"
                why = "the build's data differ from the general build's, or that is not cached"
                raise IngotError("bad-model", what, why=why)
            return Executable(package, times_s={"cache": time.perf_counter() - begin})

    def start(self, sizes: Values) -> ChildBuild:
        """A process that compiles the build into the cache."""
        is_file = isinstance(self.model, str)
        asked = {**self.asked, "shapes": self._shapes(sizes)}
        with options.using(self.options):
            environment = options.child_environment(INGOT_DUMP_DIR="")
        return ChildBuild(
            {**asked, "path": self.model if is_file else None},
            b"" if isinstance(self.model, str) else self.model,
            environment,
        )

    def _shapes(self, sizes: Values) -> dict[str, Any]:
        """What the caller constrains, and the sizes of this build, which are within that."""
        return {**{str(name): size for name, size in self.asked["shapes"].items()}, **sizes}
