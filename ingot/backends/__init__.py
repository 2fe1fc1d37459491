"""Back ends, one object for each kind of target: it parses its targets and builds packages.

Back ends are found through the entry-point group `ingot.backends`; `cpu` is built in. Level 8.
"""
