"""Relaxed synchronization: exchange less often, with fewer ranks, or without waiting."""

from lsdl_lib.communication.relaxed.easgd import EAMSGD, EASGD
from lsdl_lib.communication.relaxed.gossip import Gossip
from lsdl_lib.communication.relaxed.local_sgd import LocalSGD
from lsdl_lib.communication.relaxed.post_local import PostLocalSGD
from lsdl_lib.communication.relaxed.push_sum import PushSum

__all__ = ["EAMSGD", "EASGD", "Gossip", "LocalSGD", "PostLocalSGD", "PushSum"]
