"""Data parallelism: every rank has the whole model and a part of the batch."""

from lsdl_lib.communication.data_parallel.bucketed import BucketedDataParallel
from lsdl_lib.communication.data_parallel.buckets import Bucket, make_buckets
from lsdl_lib.communication.data_parallel.naive import NaiveDataParallel
from lsdl_lib.communication.data_parallel.overlapped import OverlappedDataParallel
from lsdl_lib.communication.data_parallel.wrapper import DataParallel

__all__ = [
    "Bucket",
    "BucketedDataParallel",
    "DataParallel",
    "NaiveDataParallel",
    "OverlappedDataParallel",
    "make_buckets",
]
