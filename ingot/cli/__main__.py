"""`python -m ingot.cli` is `ingot`."""

from ingot.cli.main import main

main(prog_name="ingot")
