"""Analytical cost models and the decisions made with them.

    contraction.py    register tile, panel width, cache blocking, prefetch distance, partial sums;
                      MachineModel, the roofline of one core
    plan.py           ContractionPlan: what was decided for one contraction, as text and as data
    shape.py          Contraction: what decisions may know of a block
    gemm.py, depthwise.py, small_m_gemm.py, attention.py, winograd.py
                      decide: one algorithm each, a Contraction and a Target → plans

In: sizes, element type, Target. Out: plans and numbers. Called by passes and by schedule rules.
"""
