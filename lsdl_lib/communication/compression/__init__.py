"""Compression: fewer bytes for a gradient, and what that costs in quality."""

from lsdl_lib.communication.compression.compressor import Compressor, Exact, message_bytes
from lsdl_lib.communication.compression.error_feedback import ErrorFeedback
from lsdl_lib.communication.compression.hook import CompressionState, compression_hook
from lsdl_lib.communication.compression.peers import Alone, Peers

__all__ = [
    "Alone",
    "CompressionState",
    "Compressor",
    "ErrorFeedback",
    "Exact",
    "Peers",
    "compression_hook",
    "message_bytes",
]
