"""Other runtimes beside Ingot, each in a process of its own. Used by `ingot bench`.

with_*.py: one runtime each, the same four methods. child.py: the process. process.py: this side of
its pipe. contest.py: rounds, and whose answers agree.
"""
