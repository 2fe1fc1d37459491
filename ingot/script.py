"""The words of the kernel language, with types, for editors and type checkers.

    from ingot.script import block, f32, grid          or: import ingot.script as T … T.grid(n, m)

A kernel is parsed, never executed: these functions only declare signatures. The built-ins range,
min, max, abs, round and pow have a meaning in kernels too and are not redefined here. mypy and
pyright accept the annotations, if the module has `n = size` for a size n in them. docs/kernels.md
and docs/loops.md have the language.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NoReturn

from ingot import dtypes
from ingot.dtypes import DType
from ingot.support.errors import IngotError


def _only_in_kernels(word: str) -> NoReturn:
    raise IngotError(
        "bad-text",
        f"{word} belongs to the kernel language",
        why="it has a meaning only in a function under @ingot.kernel, which is parsed",
    )


class ElementType:
    """f32[128, n] is a buffer's type, f32(x) a conversion; `dtype` is the type itself."""

    def __init__(self, dtype: DType):
        self.dtype = dtype

    def __getitem__(self, shape: Any) -> Any:
        return self

    def __call__(self, value: Any) -> Any:
        _only_in_kernels(f"{self.dtype.name}(…)")

    def __repr__(self) -> str:
        return self.dtype.name


class Parameter:
    """`size` and `buffer`: what else the annotation of a parameter may be."""

    def __init__(self, word: str):
        self._word = word

    def __getitem__(self, arguments: Any) -> Any:
        return self

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        _only_in_kernels(self._word)


if TYPE_CHECKING:
    # Annotations such as f32[n, 4] are no types to mypy: for it the words come from a module that
    # does not exist, so that they are Any and what is in brackets is not looked at.
    MYPY = False  # mypy takes this name for true
    if MYPY:
        from ingot._any import (  # type: ignore[import-not-found]  # noqa: I001
            bf16, bool_, buffer, f8e4m3fn, f8e5m2, f16, f32, f64, i4, i8, i16, i32, i64, size, u4,
            u8, u16, u32, u64,
        )  # fmt: skip
    else:

        class _Buffer:
            def __new__(cls, value: Any) -> Any: ...
            def __class_getitem__(cls, shape: Any) -> Any: ...
            def __getitem__(self, at: Any) -> Any: ...
            def __setitem__(self, at: Any, value: Any) -> None: ...

        # fmt: off
        class bool_(_Buffer): ...
        class i4(_Buffer): ...
        class u4(_Buffer): ...
        class i8(_Buffer): ...
        class u8(_Buffer): ...
        class i16(_Buffer): ...
        class u16(_Buffer): ...
        class i32(_Buffer): ...
        class u32(_Buffer): ...
        class i64(_Buffer): ...
        class u64(_Buffer): ...
        class f16(_Buffer): ...
        class bf16(_Buffer): ...
        class f32(_Buffer): ...
        class f64(_Buffer): ...
        class f8e4m3fn(_Buffer): ...
        class f8e5m2(_Buffer): ...
        # fmt: on

        class size:
            """A parameter that is a symbolic size: `n: size`, `n: size[1, 512]` from 1 to 512,
            `n: size[1, 512, 8]` a multiple of 8 too. Also a call: `size(1, 512, divisor=8)`."""

            def __class_getitem__(cls, limits: Any) -> Any: ...

        class buffer(_Buffer):
            """A parameter in a memory scope of its own: `A: buffer[f32[16], "shared"]`."""

else:
    bool_ = ElementType(dtypes.bool_)
    i4 = ElementType(dtypes.i4)
    u4 = ElementType(dtypes.u4)
    i8 = ElementType(dtypes.i8)
    u8 = ElementType(dtypes.u8)
    i16 = ElementType(dtypes.i16)
    u16 = ElementType(dtypes.u16)
    i32 = ElementType(dtypes.i32)
    u32 = ElementType(dtypes.u32)
    i64 = ElementType(dtypes.i64)
    u64 = ElementType(dtypes.u64)
    f16 = ElementType(dtypes.f16)
    bf16 = ElementType(dtypes.bf16)
    f32 = ElementType(dtypes.f32)
    f64 = ElementType(dtypes.f64)
    f8e4m3fn = ElementType(dtypes.f8e4m3fn)
    f8e5m2 = ElementType(dtypes.f8e5m2)
    size, buffer = Parameter("size"), Parameter("buffer")

inf = float("inf")
nan = float("nan")

# --- sizes and memory ---------------------------------------------------------------------------


def alloc(type: Any, scope: str = "global") -> Any:
    """A new buffer: `T = alloc(f32[128, n])`, `alloc(f32[4], "register")`."""
    _only_in_kernels("alloc")


# --- loops and blocks ---------------------------------------------------------------------------


def grid(*extents: Any) -> Iterator[Any]:
    """Nested serial loops: `for i, j in grid(n, 64):`."""
    _only_in_kernels("grid")


def serial(start: Any, stop: Any = None, annotations: Any = None) -> Iterator[Any]:
    """A loop whose iterations run in order: `serial(n)`, `serial(1, n)`; the same as `range`."""
    _only_in_kernels("serial")


def parallel(start: Any, stop: Any = None, annotations: Any = None) -> Iterator[Any]:
    """A loop whose independent iterations are divided among threads."""
    _only_in_kernels("parallel")


def vectorized(start: Any, stop: Any = None, annotations: Any = None) -> Iterator[Any]:
    """A loop whose iterations become vector lanes."""
    _only_in_kernels("vectorized")


def unrolled(start: Any, stop: Any = None, annotations: Any = None) -> Iterator[Any]:
    """A loop that is fully unrolled."""
    _only_in_kernels("unrolled")


def bound(tag: str, start: Any, stop: Any = None, annotations: Any = None) -> Iterator[Any]:
    """A loop bound to a GPU index: `bound("threadIdx.x", 128)`."""
    _only_in_kernels("bound")


def block(
    name: str, spatial: Any = (), reduce: Any = (), ordered: Any = (), opaque: Any = (),
    axes: Any = (), annotations: Any = None,
) -> AbstractContextManager[Any]:  # fmt: skip
    """One unit of computation: `with block("Y", spatial=(i, j), reduce=(k,)) as (vi, vj, vk):`."""
    _only_in_kernels("block")


def axis(binding: Any, extent: Any) -> Any:
    """An axis bound to an expression: `spatial=(axis(io * 4 + ii, 100),)`."""
    _only_in_kernels("axis")


def spatial(binding: Any, extent: Any = None) -> Any:
    """In `axes=(spatial(i), reduce(k), spatial(j))`: instances are independent."""
    _only_in_kernels("spatial")


def reduce(binding: Any, extent: Any = None) -> Any:
    """Instances combine, in any order within the reduction."""
    _only_in_kernels("reduce")


def ordered(binding: Any, extent: Any = None) -> Any:
    """Instances run in order."""
    _only_in_kernels("ordered")


def opaque(binding: Any, extent: Any = None) -> Any:
    """The order and independence of instances are unknown."""
    _only_in_kernels("opaque")


def init() -> AbstractContextManager[Any]:
    """The initial value of a reduction: `with init(): Y[vi, vj] = 0.0`."""
    _only_in_kernels("init")


def where(condition: Any) -> None:
    """A block's predicate, its first statement: instances where it is false are skipped."""
    _only_in_kernels("where")


def seq() -> AbstractContextManager[Any]:
    """Statements one after the other, in which names are bound by `with let(…) as`."""
    _only_in_kernels("seq")


def let(value: Any) -> AbstractContextManager[Any]:
    """`with let(x * 2.0) as t:`; a plain `t = x * 2.0` binds to the end of the suite."""
    _only_in_kernels("let")


# --- values ---------------------------------------------------------------------------------------


def select(condition: Any, a: Any, b: Any) -> Any:
    """`a` where the condition holds, else `b`; both are evaluated."""
    _only_in_kernels("select")


def cast(value: Any, type: Any, mode: str = "saturate") -> Any:
    """A conversion to an element type: `cast(x, i8)`; mode "wrap" or "saturate"."""
    _only_in_kernels("cast")


def bitcast(value: Any, type: Any) -> Any:
    """The same bits as another element type of that width."""
    _only_in_kernels("bitcast")


def fma(a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""
    _only_in_kernels("fma")


def index(expression: Any) -> Any:
    """An index as an i64 value: `index(i * 4)`."""
    _only_in_kernels("index")


def value(expression: Any) -> Any:
    """A value inside an index: `A[value(B[i] * 2)]`."""
    _only_in_kernels("value")


def rem(a: Any, b: Any) -> Any:
    """The remainder with the dividend's sign."""
    _only_in_kernels("rem")


def load(place: Any, width: int = 1, stride: Any = 1, mask: Any = None, other: Any = None) -> Any:
    """A vector load, `load(A[i], 8)`; masked-off lanes access no memory."""
    _only_in_kernels("load")


def store(place: Any, value: Any, stride: Any = 1, mask: Any = None) -> None:
    """A vector store, `store(A[i], x)`; masked-off lanes access no memory."""
    _only_in_kernels("store")


def ramp(base: Any, stride: Any, width: int) -> Any:
    """The vector base, base + stride, … of `width` lanes."""
    _only_in_kernels("ramp")


def broadcast(value: Any, width: int) -> Any:
    """The vector of `width` equal lanes."""
    _only_in_kernels("broadcast")


def lanes(*items: Any) -> Any:
    """The vector of these lanes."""
    _only_in_kernels("lanes")


def shuffle(a: Any, b: Any, picks: Any) -> Any:
    """Lanes of two vectors, picked by number."""
    _only_in_kernels("shuffle")


def lane_reduce(op: str, value: Any) -> Any:
    """All lanes combined: `lane_reduce("add", x)`."""
    _only_in_kernels("lane_reduce")


def floor(x: Any) -> Any:
    """The largest integer not above x."""
    _only_in_kernels("floor")


def ceil(x: Any) -> Any:
    """The smallest integer not below x."""
    _only_in_kernels("ceil")


def trunc(x: Any) -> Any:
    """x without its fraction."""
    _only_in_kernels("trunc")


def sqrt(x: Any) -> Any:
    """The square root."""
    _only_in_kernels("sqrt")


def isnan(x: Any) -> Any:
    """Is x not a number?"""
    _only_in_kernels("isnan")


def exp(x: Any) -> Any:
    """e to the power x."""
    _only_in_kernels("exp")


def exp2(x: Any) -> Any:
    """2 to the power x."""
    _only_in_kernels("exp2")


def expm1(x: Any) -> Any:
    """exp(x) - 1, exact near 0."""
    _only_in_kernels("expm1")


def log(x: Any) -> Any:
    """The natural logarithm."""
    _only_in_kernels("log")


def log2(x: Any) -> Any:
    """The logarithm to base 2."""
    _only_in_kernels("log2")


def log1p(x: Any) -> Any:
    """log(1 + x), exact near 0."""
    _only_in_kernels("log1p")


def tanh(x: Any) -> Any:
    """The hyperbolic tangent."""
    _only_in_kernels("tanh")


def erf(x: Any) -> Any:
    """The error function."""
    _only_in_kernels("erf")


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    _only_in_kernels("sigmoid")


def rsqrt(x: Any) -> Any:
    """1 / sqrt(x)."""
    _only_in_kernels("rsqrt")


def sin(x: Any) -> Any:
    """The sine."""
    _only_in_kernels("sin")


def cos(x: Any) -> Any:
    """The cosine."""
    _only_in_kernels("cos")


def tan(x: Any) -> Any:
    """The tangent."""
    _only_in_kernels("tan")


def asin(x: Any) -> Any:
    """The inverse sine."""
    _only_in_kernels("asin")


def acos(x: Any) -> Any:
    """The inverse cosine."""
    _only_in_kernels("acos")


def atan(x: Any) -> Any:
    """The inverse tangent."""
    _only_in_kernels("atan")


def sinh(x: Any) -> Any:
    """The hyperbolic sine."""
    _only_in_kernels("sinh")


def cosh(x: Any) -> Any:
    """The hyperbolic cosine."""
    _only_in_kernels("cosh")


def asinh(x: Any) -> Any:
    """The inverse hyperbolic sine."""
    _only_in_kernels("asinh")


def acosh(x: Any) -> Any:
    """The inverse hyperbolic cosine."""
    _only_in_kernels("acosh")


def atanh(x: Any) -> Any:
    """The inverse hyperbolic tangent."""
    _only_in_kernels("atanh")


def fmod(x: Any, y: Any) -> Any:
    """The remainder of x / y with the sign of x."""
    _only_in_kernels("fmod")


def philox(low: Any, high: Any, key: Any) -> Any:
    """64 random bits of a 128-bit counter and a key, all u64: Philox4x32-10."""
    _only_in_kernels("philox")


# --- effects --------------------------------------------------------------------------------------


def fail(reason: str, *values: Any) -> None:
    """Fail with an error and at most two integers for its message."""
    _only_in_kernels("fail")


def call(instruction: Any, *boxes: Any) -> None:
    """Call an instruction on slices of buffers: `call(dot4, A[i:i + 4], B[0:4])`."""
    _only_in_kernels("call")


def instruction(function: Any = None, *, name: str = "", emit: str = "") -> Any:
    """Declares a nested function as the semantics of a machine instruction."""
    _only_in_kernels("instruction")


def sync(scope: str) -> None:
    """A barrier for all threads that share a scope."""
    _only_in_kernels("sync")


def copy_async(dst: Any, src: Any, token: str) -> None:
    """Start a copy between slices of buffers; `wait(token)` ends it."""
    _only_in_kernels("copy_async")


def wait(token: str) -> None:
    """Wait for the copies that have this token."""
    _only_in_kernels("wait")


def prefetch(box: Any) -> None:
    """Bring a slice into the cache, to be read."""
    _only_in_kernels("prefetch")


def prefetch_write(box: Any) -> None:
    """Bring a slice into the cache, to be written."""
    _only_in_kernels("prefetch_write")


__all__ = [  # noqa: RUF022  sorted by letter, across cases
    "acos", "acosh", "alloc", "asin", "asinh", "atan", "atanh", "axis", "bf16", "bitcast",
    "block", "bool_", "bound", "broadcast", "buffer", "call", "cast", "ceil", "copy_async",
    "cos", "cosh", "erf", "exp", "exp2", "expm1", "f16", "f32", "f64", "f8e4m3fn", "f8e5m2",
    "fail", "floor", "fma", "fmod", "grid", "i16", "i32", "i4", "i64", "i8", "index", "inf",
    "init", "instruction", "isnan", "lane_reduce", "lanes", "let", "load", "log", "log1p",
    "log2", "nan", "opaque", "ordered", "parallel", "philox", "prefetch", "prefetch_write",
    "ramp", "reduce", "rem", "rsqrt", "select",
    "seq", "serial", "shuffle", "sigmoid", "sin", "sinh", "size", "spatial", "sqrt", "store",
    "sync", "tan", "tanh", "trunc", "u16", "u32", "u4", "u64", "u8", "unrolled", "value",
    "vectorized", "wait", "where",
]  # fmt: skip
