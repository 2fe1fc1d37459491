"""The program IR: kernels in order over planned memory; it becomes one native function. Level 3."""
