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
    TrainingError,
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
            TrainingError: a server is gone, or another worker failed; names the rank.
        """
        self._vector.read_gradients()
        self._send(PUSH, self._gradients)
        self.steps += 1
        return self._pull()

    def __enter__(self):
        self._pull()
        return self

    def __exit__(self, kind, error, trace):
        if error is None:
            self._send(GOODBYE)
            self._pull()
        elif not isinstance(error, TrainingError):
            self._fail(range(len(self._versions)), self._channel.rank)

    def _send(self, kind, vectors=None):
        clock = virtual.current()
        ready = clock.read() if clock is not None else 0.0
        for server, version in enumerate(self._versions):
            vector = vectors[server] if vectors else None
            self._sends += self._channel.send(server, kind, version, self.steps, vector, ready)

    def _pull(self):
        """Receive a message of every server; return whether training goes on."""
        clock = virtual.current()
        if clock is not None:
            clock.stop()
        answers = [self._answer(server) for server in range(len(self._shards))]
        if clock is not None:
            clock.go()
        errors = [answer for answer in answers if isinstance(answer, Exception)]
        if errors:
            well = [s for s, answer in enumerate(answers) if not isinstance(answer, Exception)]
            self._fail(well, errors[0].rank)
            raise errors[0]
        for server, answer in enumerate(answers):
            self._channel.arrive(server, answer)
            self._versions[server] = answer.version
        # Where an answer has come, the gradient has left.
        self._wait_for_sends()
        self._vector.write()
        return all(answer.kind != STOP for answer in answers)

    def _answer(self, server):
        """Return a server's message, or the error that it tells or has."""
        try:
            message = self._channel.receive(server, self._shards[server])
        except RuntimeError as error:
            return TrainingError(f"the server on rank {server} is gone: {error}", server)
        if message.kind == LOST:
            text = f"the server says: rank {message.step} failed (connection closed)"
            return TrainingError(text, message.step)
        return message

    def _fail(self, servers, culprit):
        """Tell servers that wait for this worker that it pushes no more."""
        for server in servers:
            with contextlib.suppress(RuntimeError):  # it may be gone too
                self._sends += self._channel.send(server, FAILED, step=culprit)
        with contextlib.suppress(RuntimeError):
            self._wait_for_sends()

    def _wait_for_sends(self):
        for work in self._sends:
            work.wait()
        self._sends.clear()
