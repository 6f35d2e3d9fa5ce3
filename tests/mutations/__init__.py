"""Change one line of the code and see the claims of a chapter fail."""
