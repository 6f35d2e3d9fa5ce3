"""Relaxed synchronization: exchange less often, with fewer ranks, or without waiting."""

from lsdl_lib.communication.relaxed.asynchronous import Asynchronous
from lsdl_lib.communication.relaxed.backup_workers import BackupWorkers
from lsdl_lib.communication.relaxed.consensus import consensus_distance
from lsdl_lib.communication.relaxed.delay_compensation import DelayCompensatedSGD
from lsdl_lib.communication.relaxed.delayed import DelayedDataParallel
from lsdl_lib.communication.relaxed.easgd import EAMSGD, EASGD
from lsdl_lib.communication.relaxed.event_log import Event, EventLog
from lsdl_lib.communication.relaxed.gossip import Gossip
from lsdl_lib.communication.relaxed.hogwild import share_parameters, sparsity
from lsdl_lib.communication.relaxed.local_sgd import LocalSGD
from lsdl_lib.communication.relaxed.pace import scripted_clock, spend
from lsdl_lib.communication.relaxed.post_local import PostLocalSGD
from lsdl_lib.communication.relaxed.push_sum import PushSum
from lsdl_lib.communication.relaxed.replay import constant_staleness, replay
from lsdl_lib.communication.relaxed.rules import PlainSGD, Rule, TorchOptimizer
from lsdl_lib.communication.relaxed.server import ParameterServer
from lsdl_lib.communication.relaxed.stale_synchronous import StaleSynchronous
from lsdl_lib.communication.relaxed.staleness_aware import StalenessAwareSGD
from lsdl_lib.communication.relaxed.worker import Worker

__all__ = [
    "EAMSGD",
    "EASGD",
    "Asynchronous",
    "BackupWorkers",
    "DelayCompensatedSGD",
    "DelayedDataParallel",
    "Event",
    "EventLog",
    "Gossip",
    "LocalSGD",
    "ParameterServer",
    "PlainSGD",
    "PostLocalSGD",
    "PushSum",
    "Rule",
    "StaleSynchronous",
    "StalenessAwareSGD",
    "TorchOptimizer",
    "Worker",
    "consensus_distance",
    "constant_staleness",
    "replay",
    "scripted_clock",
    "share_parameters",
    "sparsity",
    "spend",
]
