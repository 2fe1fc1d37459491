"""Functions that printed C calls: what C leaves undefined, or has no operator for.

A helper is a template over element types; `Helpers.use` gives its name, and the file gets those in
use, each before its first caller. Every one is total: overflow wraps, a shift by the width gives 0,
a float out of range saturates and NaN becomes 0. Division by zero has some value here: kernels test
for it first, with a Fail.
"""

from __future__ import annotations

from string import Template

from ingot import dtypes
from ingot.codegen.c_text import memory_type, value_type, width, wrapping_type
from ingot.dtypes import DType

_UNARY = "static $T ingot_${op}_$t($T a)"
_BINARY = "static $T ingot_${op}_$t($T a, $T b)"

# (operator, kind of its type) → (head, body); kinds: float, int, uint
_TEMPLATES: dict[tuple[str, str], tuple[str, str]] = {
    ("min", "float"): (_BINARY, "return a < b || a != a ? a : b;"),
    ("max", "float"): (_BINARY, "return a > b || a != a ? a : b;"),
    ("min", "int"): (_BINARY, "return a < b ? a : b;"),
    ("max", "int"): (_BINARY, "return a > b ? a : b;"),
    ("min", "uint"): (_BINARY, "return a < b ? a : b;"),
    ("max", "uint"): (_BINARY, "return a > b ? a : b;"),
    ("isnan", "float"): ("static bool ingot_isnan_$t($T a)", "return a != a;"),
    ("abs", "int"): (_UNARY, "return a < 0 ? ($T)(($U)0 - ($U)a) : a;"),
    ("shl", "int"): (_BINARY, "return ($U)b < $W ? ($T)(($U)a << ($U)b) : 0;"),
    ("shl", "uint"): (_BINARY, "return ($U)b < $W ? ($T)(($U)a << ($U)b) : 0;"),
    ("shr", "int"): (_BINARY, "return ($U)b >= $W ? 0 : a < 0 ? ($T)~(~a >> b) : ($T)(a >> b);"),
    ("shr", "uint"): (_BINARY, "return ($U)b < $W ? ($T)(a >> b) : 0;"),
    ("div", "int"): (
        _BINARY, "return b == 0 ? a : b == -1 ? ($T)(($U)0 - ($U)a) : ($T)(a / b);",
    ),
    ("div", "uint"): (_BINARY, "return b == 0 ? a : ($T)(a / b);"),
    ("rem", "int"): (_BINARY, "return b == 0 || b == -1 ? 0 : ($T)(a % b);"),
    ("rem", "uint"): (_BINARY, "return b == 0 ? 0 : ($T)(a % b);"),
    ("floordiv", "int"): (
        _BINARY,
        "if (b == 0) return a;\n    if (b == -1) return ($T)(($U)0 - ($U)a);\n"
        "    return ($T)(a / b - (a % b != 0 && (a % b < 0) != (b < 0)));",
    ),
    ("mod", "int"): (
        _BINARY,
        "if (b == 0 || b == -1) return 0;\n"
        "    return ($T)(a % b + (a % b != 0 && (a % b < 0) != (b < 0) ? b : 0));",
    ),
}  # fmt: skip

_ABS = """static $T ingot_abs_$t($T a)
{
    return ingot_bits_u${w}_$t(ingot_bits_${t}_u$w(a) & (UINT${w}_MAX >> 1));
}
"""

_BITS = """static $T ingot_bits_${s}_$t($S a)
{
    union { $S from; $T to; } both;
    both.from = a;
    return both.to;
}
"""

_SATURATE = """static $T ingot_${s}_to_$t($S a)
{
    if (a != a) return 0;
    return a <= $low ? $MIN : a >= $high ? $MAX : ($T)a;
}
"""

# Correctly rounded: an estimate by Newton's method, then the neighbour if the midpoint between both
# is on the wrong side. The square of a midpoint (25 bits) is exact in double.
_SQRT_F32 = """static float ingot_sqrt_f32(float a)
{
    const double x = a;
    double r;
    float root, above, below;
    if (!(a > 0.0f) || a > FLT_MAX)
        return a < 0.0f ? ingot_bits_u32_f32(0x7fc00000u) : a;
    r = ingot_bits_u64_f64(UINT64_C(0x5fe6eb50c7b537a9) - (ingot_bits_f64_u64(x) >> 1));
    r = r * (1.5 - 0.5 * x * r * r);
    r = r * (1.5 - 0.5 * x * r * r);
    r = r * (1.5 - 0.5 * x * r * r);
    root = (float)(x * r);
    above = ingot_bits_u32_f32(ingot_bits_f32_u32(root) + 1u);
    below = ingot_bits_u32_f32(ingot_bits_f32_u32(root) - 1u);
    if (0.25 * ((double)root + above) * ((double)root + above) < x) return above;
    if (0.25 * ((double)root + below) * ((double)root + below) > x) return below;
    return root;
}
"""

# Correctly rounded: the same on m = a * 4**-k in [1, 4), with the exact residual m - root**2 by
# Dekker's product.
_SQRT_F64 = """static double ingot_residual(double m, double root)
{
    const double big = 134217729.0 * root, high = big - (big - root), low = root - high;
    const double square = root * root;
    const double error = ((high * high - square) + 2.0 * high * low) + low * low;
    return (m - square) - error;
}

static double ingot_sqrt_f64(double a)
{
    const double ulp = 0x1p-52;
    double m, r, root, scale = 1.0, rest;
    uint64_t bits;
    int64_t exponent, half;
    if (!(a > 0.0) || a > DBL_MAX)
        return a < 0.0 ? ingot_bits_u64_f64(UINT64_C(0x7ff8000000000000)) : a;
    if (a < DBL_MIN) {
        a = a * 0x1p+54;
        scale = 0x1p-27;
    }
    bits = ingot_bits_f64_u64(a);
    exponent = (int64_t)(bits >> 52);
    half = (exponent + 1) / 2 - 512;
    m = ingot_bits_u64_f64((bits & (UINT64_MAX >> 12)) | ((uint64_t)(exponent - 2 * half) << 52));
    r = ingot_bits_u64_f64(UINT64_C(0x5fe6eb50c7b537a9) - (ingot_bits_f64_u64(m) >> 1));
    r = r * (1.5 - 0.5 * m * r * r);
    r = r * (1.5 - 0.5 * m * r * r);
    r = r * (1.5 - 0.5 * m * r * r);
    r = r * (1.5 - 0.5 * m * r * r);
    root = m * r;
    root = root + 0.5 * r * ingot_residual(m, root);
    root = root < 1.0 ? 1.0 : root;
    rest = ingot_residual(m, root);
    if (rest > root * ulp) root = root + ulp;
    else if (rest <= -root * ulp) root = root - ulp;
    return root * ingot_bits_u64_f64((uint64_t)(half + 1023) << 52) * scale;
}
"""

COPY = """static void ingot_copy(void *to, const void *from, int64_t bytes)
{
    unsigned char *restrict target = to;
    const unsigned char *restrict source = from;
    for (int64_t i = 0; i < bytes; i++) target[i] = source[i];
}
"""


class Helpers:
    """The helpers in use, in an order that defines each before its callers."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def text(self) -> str:
        return "\n".join(self._texts.values())

    def add(self, name: str, text: str) -> str:
        self._texts.setdefault(name, text)
        return name

    def use(self, op: str, dtype: DType) -> str:
        """The name of the operator's function on `dtype`."""
        if op == "sqrt":
            return self._sqrt(dtype)
        if op == "abs" and dtype.is_float:
            unsigned = dtypes.of(f"u{dtype.bits}")
            self.bits(dtype, unsigned), self.bits(unsigned, dtype)
            return self.add(f"ingot_abs_{dtype}", _fill(_ABS, dtype))
        kind = "float" if dtype.is_float else "int" if dtype.is_signed else "uint"
        op = {"floordiv": "div", "mod": "rem"}.get(op, op) if kind == "uint" else op
        head, body = _TEMPLATES[op, kind]
        return self.add(f"ingot_{op}_{dtype}", _fill(f"{head}\n{{\n    {body}\n}}\n", dtype, op=op))

    def bits(self, source: DType, target: DType) -> str:
        """The function that reads the bits of `source` as `target`."""
        filled = _fill(_BITS, target, s=source.name, S=value_type(source))
        return self.add(f"ingot_bits_{source}_{target}", filled)

    def saturate(self, source: DType, target: DType) -> str:
        """The function that converts a float to the nearest integer toward zero that there is."""
        low = f"(-0x1p+{width(target) - 1})" if target.is_signed else "0.0"
        high = f"0x1p+{width(target) - (1 if target.is_signed else 0)}"
        suffix = "f" if source.bits == 32 else ""
        low = low.replace(")", f"{suffix})") if ")" in low else low + suffix
        limit = memory_type(target).removesuffix("_t").upper()
        filled = _fill(
            _SATURATE, target, s=source.name, S=value_type(source), low=low, high=high + suffix,
            MIN=f"{limit}_MIN" if target.is_signed else "0", MAX=f"{limit}_MAX",
        )  # fmt: skip
        return self.add(f"ingot_{source}_to_{target}", filled)

    def _sqrt(self, dtype: DType) -> str:
        for name in ("32", "64") if dtype is dtypes.f32 else ("64",):
            number, word = dtypes.of(f"f{name}"), dtypes.of(f"u{name}")
            self.bits(number, word), self.bits(word, number)
        return self.add(f"ingot_sqrt_{dtype}", _SQRT_F32 if dtype is dtypes.f32 else _SQRT_F64)


def _fill(template: str, dtype: DType, **more: str) -> str:
    w = str(width(dtype))
    words = {"T": value_type(dtype), "U": wrapping_type(dtype), "t": dtype.name, "w": w}
    return Template(template).substitute(words | {"W": w + "u"} | more)
