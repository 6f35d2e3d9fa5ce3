"""Compression: fewer bytes for a gradient, and what that costs in quality."""

from lsdl_lib.communication.compression.atomo import Atomo
from lsdl_lib.communication.compression.compressor import Compressor, Exact, message_bytes
from lsdl_lib.communication.compression.error_feedback import ErrorFeedback
from lsdl_lib.communication.compression.hook import CompressionState, compression_hook
from lsdl_lib.communication.compression.one_bit import OneBitSGD
from lsdl_lib.communication.compression.peers import Alone, Peers
from lsdl_lib.communication.compression.power_sgd import PowerSGD
from lsdl_lib.communication.compression.qsgd import QSGD
from lsdl_lib.communication.compression.sign import ScaledSign
from lsdl_lib.communication.compression.tern_grad import TernGrad
from lsdl_lib.communication.compression.vote import Signum, SignVote

__all__ = [
    "QSGD",
    "Alone",
    "Atomo",
    "CompressionState",
    "Compressor",
    "ErrorFeedback",
    "Exact",
    "OneBitSGD",
    "Peers",
    "PowerSGD",
    "ScaledSign",
    "SignVote",
    "Signum",
    "TernGrad",
    "compression_hook",
    "message_bytes",
]
