"""The command line: `ingot compile | run | show`. Level 10."""
