"""Graph → kernels and an unplanned program. In: a graph. Out: a Program. Level 6."""
