"""Program → program with arenas and barriers. Runs after legalize. Level 7."""
