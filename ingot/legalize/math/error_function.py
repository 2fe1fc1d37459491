"""erf and tanh in f32, erf in f64: a polynomial near zero, one minus a decaying exponential beyond.

Coefficients: minimax, as in exponential.
"""

from __future__ import annotations

from ingot.legalize.math.code import V, choose, copy_sign, polynomial
from ingot.legalize.math.exponential import exp, exp_small

# erf(x)/x - 1 in x², |error| < 2^-29.9 over |x| ≤ 0.93
_ERF_NEAR_F32 = (
    0.12837916612625122, -0.3761262893676758, 0.11283624172210693, -0.02685558795928955,
    0.005191947799175978, -0.0008043838897719979, 7.969656144268811e-05,
)  # fmt: skip
# -log(erfc(t)) over [0.92, 3.95], |error · erfc| < 2^-29.3
_ERF_FAR_F32 = (
    0.00020708763622678816, 1.1276270151138306, 0.6372665166854858, 0.10385558754205704,
    -0.022189335897564888, 0.003033566288650036, -0.00019493263971526176,
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
    x = x.keep()
    a = abs(x).keep()
    near = a.times_plus(polynomial((a * a).keep(), _ERF_NEAR_F32), a)
    t = choose(a > 3.95, 3.95, a).keep()
    far = 1.0 - exp_small(-polynomial(t, _ERF_FAR_F32))
    return copy_sign(choose(a < 0.925, near, far), x)


def erf_f64(x: V) -> V:
    x = x.keep()
    a = abs(x).keep()
    near = a.times_plus(polynomial((a * a).keep(), _ERF_NEAR_F64), a)
    t = choose(a > 6.0, 6.0, a).keep()
    u = ((t - 3.0) / (t + 3.0)).keep()
    far = 1.0 - exp(-(t * t)) * polynomial(u, _ERF_FAR_F64)
    return copy_sign(choose(a < 1.0, near, far), x)


def tanh_f32(x: V) -> V:
    x = x.keep()
    a = abs(x).keep()
    square = (a * a).keep()
    near = (a * square).times_plus(polynomial(square, _TANH_F32), a)
    e = exp_small(choose(a > 10.0, 10.0, a) * 2.0)
    far = 1.0 - 2.0 / (e + 1.0)
    return copy_sign(choose(a < 0.625, near, far), x)
