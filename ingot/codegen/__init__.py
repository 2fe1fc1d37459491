"""Printers: legal IR in, text and object bytes out. No decisions are made here. Level 7."""
