"""Complete implementations behind the book *Large-Scale Deep Learning: a textbook you can run*.

``from lsdl_lib import launch`` is the function that starts ranks; the parts of the book are the
subpackages. Nothing here runs at import.
"""

from lsdl_lib.launch import launch, progress
from lsdl_lib.tier import by_tier, tier

__all__ = ["by_tier", "launch", "progress", "tier"]
