"""Graph → kernels and an unplanned program. In: a fused graph. Out: a Program. Level 6."""
