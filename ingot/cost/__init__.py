"""Analytical cost models: GEMM register tiles and cache blocks, Winograd convolutions, roofline.

    contraction.py   register tile, panel width, cache blocking, prefetch distance, partial sums;
                     MachineModel, the roofline of one core
    winograd.py      where F(2x2, 3x3) is faster than the direct convolution, and its blocks

In: sizes, element type, Target. Out: numbers. Called by passes and by schedule rules.
"""
