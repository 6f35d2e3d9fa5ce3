"""Claims: every number in the book has a check behind it that fails when it stops being true.

A chapter makes one ``Claims`` object and calls ``check`` on it. Each check prints one line that
is the same on every machine, raises :class:`ClaimFailed` when the claim is false, and leaves a
record: what was measured, what was expected, and what ran. ``python -m lsdl_lib.claims``
compares, bundles and imports such records.
"""

from lsdl_lib.claims.chapter import Claims
from lsdl_lib.claims.expectation import ClaimFailed

__all__ = ["ClaimFailed", "Claims"]
