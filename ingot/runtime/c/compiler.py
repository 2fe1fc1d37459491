"""C text → a loaded shared object, by the system's C compiler. Called by loaded.py.

`find` is the one place that looks for a compiler: INGOT_CC, then cc, gcc and clang on the path,
then the `ziglang` wheel. Objects are kept in the cache of kernels, by text and command.
"""

from __future__ import annotations

import ctypes
import hashlib
import shlex
import shutil
import subprocess
import sys
import tempfile
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from ingot.support import options
from ingot.support.cache_folder import open_folder
from ingot.support.errors import IngotError

FLAGS = ("-std=c99", "-shared", "-fPIC")
ON_PATH = ("cc", "gcc", "clang")
# zig compiles for this very machine by default, but other machines may use the same cache; and for
# AVX-512 its clang 22 vectorises some loops wrongly (ceil of bfloat16; seen with 22.1.8)
ZIG = (sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline")
HINT = "install one (apt install gcc, or pip install ziglang), or set INGOT_CC"


def find() -> tuple[str, ...] | None:
    """The command that starts a C compiler; None if there is none."""
    if chosen := options.current().cc:
        command = tuple(shlex.split(chosen))
        return command if command and shutil.which(command[0]) else None
    for name in ON_PATH:
        if path := shutil.which(name):
            return (path,)
    return ZIG if find_spec("ziglang") else None


def why_not() -> str:
    """Why C cannot be compiled here; empty if it can."""
    if find() is not None:
        return ""
    return f"there is no C compiler {options.current().cc}".strip() + f": {HINT}"


def load(text: str, where: str) -> ctypes.CDLL:
    """The text as code in this process; `where` names the model in errors."""
    command = find()
    if command is None:
        raise IngotError("bad-target", "C code cannot run here", where=where, why=why_not())
    arguments = (*FLAGS, *shlex.split(options.current().cc_flags))
    folder = open_folder("kernels")
    key = _key(text, (*command, *arguments, _version(command)))
    data = None if folder is None else folder.get(key)
    with tempfile.TemporaryDirectory(prefix="ingot-c-") as place:
        library = Path(place, "model.so")
        if data is not None:
            library.write_bytes(data)
        else:
            _compile(text, [*command, *arguments], library, where)
            if folder is not None:
                folder.put(key, library.read_bytes())
        return ctypes.CDLL(str(library))  # stays mapped when the file is removed


def _compile(text: str, command: list[str], library: Path, where: str) -> None:
    source = library.with_suffix(".c")
    source.write_text(text)
    limit_s = options.current().cc_timeout_s
    try:
        done = subprocess.run(
            [*command, str(source), "-o", str(library)],
            capture_output=True, text=True, timeout=limit_s, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        what = f"{command[0]} took more than {limit_s} s"
        hint = "raise INGOT_CC_TIMEOUT_S, or set INGOT_CC_FLAGS=-O0"
        raise IngotError("codegen-failed", what, where=where, hint=hint) from error
    if done.returncode != 0:
        first = "\n".join(done.stderr.splitlines()[:8])
        what = f"{command[0]} does not compile the C code"
        hint = "set INGOT_CC to another compiler; --save FILE.c writes the code"
        raise IngotError("codegen-failed", what, where=where, why=first, hint=hint)


@lru_cache(maxsize=8)
def _version(command: tuple[str, ...]) -> str:
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    return done.stdout


def _key(text: str, parts: tuple[str, ...]) -> str:
    digest = hashlib.blake2b(digest_size=20)
    for part in (*parts, text):
        digest.update(part.encode() + b"\0")
    return "c-" + digest.hexdigest()
