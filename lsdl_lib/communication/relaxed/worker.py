"""A worker of a parameter server: it computes gradients on the weights that it has.

    with Worker(model.parameters()) as worker:
        for inputs, labels in batches:
            model.zero_grad()
            loss(model(inputs), labels).backward()
            if not worker.step():
                break

``step`` stands where an optimizer's would: it pushes the gradients to all servers and pulls new
weights. It pushes after every step and pulls after every step, as Dean et al. (2012) did in their
experiments.
"""

import contextlib

from lsdl_lib.communication.relaxed.channel import (
    FAILED,
    GOODBYE,
    LOST,
    PUSH,
    STOP,
    Channel,
)
from lsdl_lib.communication.relaxed.vector import ParameterVector, shards
from lsdl_lib.measure import virtual


class Worker:
    """One worker, on a rank behind the servers'.

    Enter it to pull the first weights; leave it to say goodbye, and to get the final ones when all
    workers have left. An error inside is told to the servers, and ends the training.

    Attributes:
        steps: gradients pushed.

    Args:
        parameters: of the model, in the same order as the servers'. Buffers are not shared.
        servers, group: as in :class:`ParameterServer`.

    Raises:
        ValueError: this rank is a server, or parameters differ in type.
        RuntimeError: the group runs on nccl.
    """

    def __init__(self, parameters, *, servers=1, group=None):
        self._channel = Channel(group)
        if self._channel.rank < servers:
            raise ValueError(f"rank {self._channel.rank} is a server: workers begin at {servers}")
        self._vector = ParameterVector(parameters)
        self._shards = shards(self._vector.values, servers)
        self._gradients = shards(self._vector.gradients, servers)
        self._versions = [0] * servers
        self._sends = []
        self.steps = 0

    def step(self):
        """Push the gradients and pull weights; return whether training goes on.

        Raises:
            RuntimeError: a server is gone, or it lost another worker; names the rank.
        """
        self._vector.read_gradients()
        self._send(PUSH, self._gradients)
        self.steps += 1
        return self._pull()

    def __enter__(self):
        self._pull()
        return self

    def __exit__(self, kind, error, trace):
        if error is not None:
            if not isinstance(error, ServerError):
                with contextlib.suppress(RuntimeError):  # the servers may be gone too
                    self._send(FAILED)
                    self._wait_for_sends()
            return
        self._send(GOODBYE)
        self._pull()
        self._wait_for_sends()

    def _send(self, kind, vectors=None):
        clock = virtual.current()
        ready = clock.read() if clock is not None else 0.0
        for server, version in enumerate(self._versions):
            vector = vectors[server] if vectors else None
            self._sends += self._channel.send(server, kind, version, self.steps, vector, ready)

    def _pull(self):
        """Receive a message of every server; return whether training goes on."""
        clock, goes_on = virtual.current(), True
        if clock is not None:
            clock.stop()
        messages = []
        for server, shard in enumerate(self._shards):
            try:
                messages.append(self._channel.receive(server, shard))
            except RuntimeError as error:
                raise ServerError(f"the server on rank {server} is gone: {error}") from error
        if clock is not None:
            clock.go()
        for server, message in enumerate(messages):
            if message.kind == LOST:
                raise ServerError(
                    f"the server on rank {server} lost the worker on rank {message.step} "
                    "(connection closed): training has ended"
                )
            self._channel.arrive(server, message)
            self._versions[server] = message.version
            goes_on = goes_on and message.kind != STOP
        self._wait_for_sends()
        self._vector.write()
        return goes_on

    def _wait_for_sends(self):
        """Wait until the gradients have left; where an answer has come, they have."""
        for work in self._sends:
            work.wait()
        self._sends.clear()


class ServerError(RuntimeError):
    """A server is gone, or it lost another worker."""
