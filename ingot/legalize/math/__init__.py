"""Mathematical functions as loop expressions: our own polynomials, the same on every target."""
