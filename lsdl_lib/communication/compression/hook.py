"""Compression as a communication hook, for our data-parallel wrappers and for torch's.

    model.register_comm_hook(CompressionState(ErrorFeedback(TopK(0.01))), compression_hook)

The hook returns at once, and a thread of its own compresses and exchanges the bucket while backward
goes on. It takes the buckets in the order in which they come, which is the same on every rank. So a
compressor may exchange several messages a bucket, one after the other: no message of another bucket
comes between. (torch's PowerSGD hook starts its second message where its first one happens to end;
with several buckets the ranks' messages then mix, and gloo aborts.)
"""

from concurrent.futures import ThreadPoolExecutor

import torch

from lsdl_lib.communication.compression.peers import Peers
from lsdl_lib.measure import virtual


class CompressionState:
    """What :func:`compression_hook` needs from call to call.

    Args:
        compressor: :class:`Compressor`; its state is kept bucket by bucket.
        peers: :class:`Peers`; None: all ranks, with torch's collectives.
    """

    def __init__(self, compressor, peers=None):
        self.compressor = compressor
        self.peers = peers if peers is not None else Peers()
        # One thread: buckets are exchanged in the order in which they come.
        self._thread = ThreadPoolExecutor(1, "compression")
        self._contents = {}  # bucket -> its parameters
        self._end = 0.0  # of the last bucket, on the virtual clock

    def state_dict(self):
        """Return the compressor's state."""
        return self.compressor.state_dict()

    def load_state_dict(self, state):
        """Go on from a saved state."""
        self.compressor.load_state_dict(state)

    def __getstate__(self):
        raise TypeError(
            "a communication state holds a process group and a thread: save its state_dict()"
        )

    def submit(self, bucket):
        """Average a bucket in the background; return its :class:`Averaging`."""
        vector, key, parameters = bucket.buffer(), bucket.index(), bucket.parameters()
        shapes = [parameter.shape for parameter in parameters]
        # torch's DDP rebuilds its buckets after the first step: an error would meet other layers.
        contents = [id(parameter) for parameter in parameters]
        changed = self._contents.setdefault(key, contents) != contents
        self._contents[key] = contents
        result = Averaging(vector)

        def average():
            if changed:
                self.compressor.forget(key)
            mean, _ = self.compressor.aggregate(vector, self.peers, key, shapes)
            return mean

        if result.clock:
            average = self._timed(average, result.beside)
        self._thread.submit(result.settle, average)
        return result

    def _timed(self, average, clock):
        def timed():
            clock.lift(self._end)  # the thread is busy with the bucket before until then
            with virtual.use(clock):
                clock.go()
                try:
                    return average()
                finally:
                    self._end = clock.read()

        return timed


def compression_hook(state, bucket):
    """Average a bucket of gradients with compressed messages.

    Args:
        state: :class:`CompressionState`.
        bucket: ``torch.distributed.GradBucket`` or ours.

    Returns:
        ``torch.futures.Future`` of the averaged vector.
    """
    return state.submit(bucket)


class Averaging(torch.futures.Future):
    """The future of a bucket's average; on the virtual clock, waiting for it takes its time."""

    def __new__(cls, vector):
        """Make a future that orders streams, where the vector's device has them."""
        return super().__new__(cls, devices=_streaming_devices(vector))

    def __init__(self, vector):
        super().__init__(devices=_streaming_devices(vector))
        self.clock = virtual.current()
        self.beside = self.clock.fork() if self.clock else None
        self._stream = None
        if vector.is_cuda:
            # The gradients are complete where the stream of backward is now.
            self._stream = torch.cuda.Stream(vector.device)
            self._stream.wait_stream(torch.cuda.current_stream(vector.device))

    def settle(self, average):
        """Compute the average and make it this future's value, or its error."""
        try:
            with torch.no_grad(), torch.cuda.stream(self._stream):
                self.set_result(average())
        except Exception as error:
            self.set_exception(error)

    def wait(self):
        """Wait for the average, (n,), and return it."""
        if self.clock is None:
            return super().wait()
        self.clock.stop()
        value = super().wait()
        self.clock.join(self.beside)
        self.clock = None
        return value


def _streaming_devices(vector):
    return [vector.device] if vector.is_cuda else None
