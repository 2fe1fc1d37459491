"""One object per kind of target: it knows its targets and turns a planned program into a package.

Back ends are found through the entry-point group `ingot.backends`; `cpu` is built in. Level 8.
"""
