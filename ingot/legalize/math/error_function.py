"""erf and tanh: one minus a decaying exponential, and a polynomial near zero, where that cancels.
erf in f32 needs no polynomial there: it combines 1 and the exponential exactly.

Coefficients: minimax, as in exponential.
"""

from __future__ import annotations

from ingot.legalize.math.code import (
    BIAS,
    MANTISSA,
    V,
    copy_sign,
    estrin,
    int_of,
    magic,
    polynomial,
    select,
)
from ingot.legalize.math.exponential import POWER_F32, exp, exp_small

# -log2(erfc(t))/t over [0, 3.925], by weighted least squares: |error of erf| < 2^-27.9 of it
_ERFC_F32 = (
    1.6279070356870564, 0.9184476103327561, 0.14827717971600057, -0.02763240427586941,
    -0.00023076762008831598, 0.0024044183020267276, -0.0009126830083535029,
    0.00016963822314188827, -1.3345142973287943e-05,
)  # fmt: skip
# erf(x)/x - 1 in x², |error| < 2^-56.1 over |x| ≤ 1.01
_ERF_NEAR_F64 = (
    0.1283791670955126, -0.37612638903184104, 0.11283791670971471, -0.026866170648108777,
    0.005223977653438372, -0.0008548328574793198, 0.00012055387387545641,
    -1.4926903191052355e-05, 1.6481278921614632e-06, -1.6557981084544386e-07,
    1.6008485733059188e-08, -1.640485959012807e-09, 1.417128222034975e-10,
)  # fmt: skip
# exp(t²)·erfc(t) in u = (t - 3) / (t + 3) over [1, 6], |error · exp(-t²)| < 2^-64
_ERF_FAR_F64 = (
    0.17900115118138982, -0.32623356004303966, 0.24560380171249396, -0.15011593649534463,
    0.07166583725285822, -0.024392499340844028, 0.004269130815330357, 0.000707687165064218,
    -0.000597406907817952, 4.396135455839308e-05, 6.077133747961195e-05,
    -1.852937850154103e-05, -1.4414915323742888e-05, -2.249536867841014e-06,
)  # fmt: skip
# (tanh(x)/x - 1)/x² in x², |error| < 2^-27.8 over |x| ≤ 0.625
_TANH_F32 = (
    -0.3333328366279602, 0.1333148330450058, -0.053742777556180954, 0.020648086443543434,
    -0.00571410171687603,
)  # fmt: skip


def erf_f32(x: V) -> V:
    """1 - 2^-q with q = -log2(erfc(|x|)), a polynomial without a constant: 2^-q is 2^n · (1 + p),
    and 1 - 2^n is exact, so small results keep their precision. From 3.925 on it is 1."""
    x = x.keep()
    a = abs(x).keep()
    t = select(a > 3.925, 3.925, a).keep()
    square = (t * t).keep()
    first, *rest = _ERFC_F32
    q = t.mul_add(first, square * estrin(t, square, rest)).keep()
    shift = magic(x.dtype) + BIAS["f32"]
    shifted = (shift - q).keep()
    r = ((shift - shifted) - q).keep()
    first, *rest = POWER_F32
    square = (r * r).keep()
    p = r.mul_add(first, square * estrin(r, square, rest))
    power = (shifted.bits(int_of(x.dtype)) << MANTISSA["f32"]).bits(x.dtype).keep()
    return copy_sign((-power).mul_add(p, 1.0 - power), x)


def erf_f64(x: V) -> V:
    x = x.keep()
    a = abs(x).keep()
    near = a.mul_add(polynomial((a * a).keep(), _ERF_NEAR_F64), a)
    t = select(a > 6.0, 6.0, a).keep()
    u = ((t - 3.0) / (t + 3.0)).keep()
    far = 1.0 - exp(-(t * t)) * polynomial(u, _ERF_FAR_F64)
    return copy_sign(select(a < 1.0, near, far), x)


def tanh_f32(x: V) -> V:
    x = x.keep()
    a = abs(x).keep()
    square = (a * a).keep()
    near = (a * square).mul_add(polynomial(square, _TANH_F32), a)
    e = exp_small(select(a > 10.0, 10.0, a) * 2.0)
    far = 1.0 - 2.0 / (e + 1.0)
    return copy_sign(select(a < 0.625, near, far), x)
