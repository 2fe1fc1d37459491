"""Formulas that exporters spell in small operators, one file each: see passes/recognize.py."""
