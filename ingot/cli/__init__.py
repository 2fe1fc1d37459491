"""The command line: one file a command, found by main.py when it is asked for. Level 10."""
