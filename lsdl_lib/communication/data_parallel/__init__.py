"""Data parallelism: every rank has the whole model and a part of the batch."""

from lsdl_lib.communication.data_parallel.bucketed import BucketedDataParallel
from lsdl_lib.communication.data_parallel.buckets import Bucket, make_buckets
from lsdl_lib.communication.data_parallel.naive import NaiveDataParallel
from lsdl_lib.communication.data_parallel.overlapped import OverlappedDataParallel
from lsdl_lib.communication.data_parallel.parameter_server import ParameterServer
from lsdl_lib.communication.data_parallel.prediction import (
    Profile,
    fit_calls,
    predict_in_turn,
    predict_overlapped,
    predict_priority,
)
from lsdl_lib.communication.data_parallel.priority import PriorityDataParallel
from lsdl_lib.communication.data_parallel.stream import Stream
from lsdl_lib.communication.data_parallel.timeline import Timeline, recorded
from lsdl_lib.communication.data_parallel.wrapper import DataParallel

__all__ = [
    "Bucket",
    "BucketedDataParallel",
    "DataParallel",
    "NaiveDataParallel",
    "OverlappedDataParallel",
    "ParameterServer",
    "PriorityDataParallel",
    "Profile",
    "Stream",
    "Timeline",
    "fit_calls",
    "make_buckets",
    "predict_in_turn",
    "predict_overlapped",
    "predict_priority",
    "recorded",
]
