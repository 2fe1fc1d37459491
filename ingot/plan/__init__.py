"""Memory planning and barriers: program → program with both. Runs after legalize. Level 7."""
