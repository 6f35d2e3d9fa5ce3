"""Compression: fewer bytes for a gradient, and what that costs in quality."""

from lsdl_lib.communication.compression.atomo import Atomo
from lsdl_lib.communication.compression.compressor import Compressor, Exact, message_bytes
from lsdl_lib.communication.compression.dgc import DGC, warm_up_share
from lsdl_lib.communication.compression.error_feedback import ErrorFeedback
from lsdl_lib.communication.compression.hook import CompressionState, compression_hook
from lsdl_lib.communication.compression.one_bit import OneBitSGD
from lsdl_lib.communication.compression.one_bit_adam import OneBitAdam, traffic_saved
from lsdl_lib.communication.compression.peers import Alone, Peers
from lsdl_lib.communication.compression.power_sgd import PowerSGD
from lsdl_lib.communication.compression.qsgd import QSGD
from lsdl_lib.communication.compression.random_k import RandomK
from lsdl_lib.communication.compression.sampled_top_k import SampledTopK
from lsdl_lib.communication.compression.sign import ScaledSign
from lsdl_lib.communication.compression.tern_grad import TernGrad
from lsdl_lib.communication.compression.threshold import Threshold
from lsdl_lib.communication.compression.top_k import TopK
from lsdl_lib.communication.compression.two_way import TwoWaySign
from lsdl_lib.communication.compression.vote import Signum, SignVote

__all__ = [
    "DGC",
    "QSGD",
    "Alone",
    "Atomo",
    "CompressionState",
    "Compressor",
    "ErrorFeedback",
    "Exact",
    "OneBitAdam",
    "OneBitSGD",
    "Peers",
    "PowerSGD",
    "RandomK",
    "SampledTopK",
    "ScaledSign",
    "SignVote",
    "Signum",
    "TernGrad",
    "Threshold",
    "TopK",
    "TwoWaySign",
    "compression_hook",
    "message_bytes",
    "traffic_saved",
    "warm_up_share",
]
