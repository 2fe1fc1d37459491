"""Code generation: legal IR → LLVM text → object bytes. Printers decide nothing. Level 7."""
