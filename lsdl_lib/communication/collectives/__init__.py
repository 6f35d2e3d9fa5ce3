"""Collectives made of point-to-point messages, one algorithm a file.

All have torch's signature, ``fn(tensor, op=SUM, group=None, async_op=False)``, work in place and
run on any backend.
"""

from lsdl_lib.communication.collectives.ring import ring_all_reduce
from lsdl_lib.communication.collectives.star import star_all_reduce

__all__ = ["ring_all_reduce", "star_all_reduce"]
