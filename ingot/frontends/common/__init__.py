"""What every importer needs and no model format owns.

solver.py          dynamic dimensions: equal ones, their ranges and divisors, learnt in one walk
shape_values.py    small integer tensors that hold sizes, as expressions (symbolic_*.py)
elements.py        casts, reshapes, scalars and simplified sizes
names.py           names as identifiers
limits.py          limits on untrusted models
"""
