"""The command line: one file per command, loaded on demand by main.py. Level 10."""
