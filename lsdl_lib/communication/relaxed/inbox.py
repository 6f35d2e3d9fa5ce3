"""Which push a server takes next: the first that came, or the earliest on the virtual clock.

A worker that has its weights owes the server one message, and no more until it is answered.

- :class:`ArrivalOrder`, in real time: a thread a worker waits for that message, and the first to
  arrive is the first to be served. The order differs from run to run.
- :class:`VirtualOrder`, on the virtual clock: the server waits until every worker that owes a
  message has sent it, and takes the one that was ready first. None of the others can still send an
  earlier one, so this is the order of virtual time, whatever the processors did. Since workers owe
  one message each, nobody waits for ever. Servers of several shards take pushes in the same order.
"""

import queue
from concurrent.futures import ThreadPoolExecutor

from lsdl_lib.measure import virtual


def inbox(channel, buffers):
    """Return the inbox for the clock that runs here.

    Args:
        channel: :class:`Channel`.
        buffers: {worker's rank: (n,)} to receive into; a worker's is in use from :meth:`expect`
            until the next one.
    """
    kind = ArrivalOrder if virtual.current() is None else VirtualOrder
    return kind(channel, buffers)


class ArrivalOrder:
    """Take messages in the order in which they come."""

    def __init__(self, channel, buffers):
        self._channel, self._buffers = channel, buffers
        self._arrived = queue.SimpleQueue()
        self.owed = set()  # workers whose message has not been taken
        self._threads = ThreadPoolExecutor(max(1, len(buffers)), "server")

    def expect(self, worker):
        """The worker has its weights: wait for its next message from now on."""
        self.owed.add(worker)
        self._threads.submit(self._take, worker)

    def take(self):
        """Wait for a message; return (worker, :class:`Message` or the error that came instead)."""
        worker, message = self._arrived.get()
        self.owed.remove(worker)
        return worker, message

    def close(self):
        """Wait for the threads. Each one ends with a worker's message, death or timeout."""
        self._threads.shutdown()

    def _take(self, worker):
        try:
            message = self._channel.receive(worker, self._buffers[worker])
        except Exception as error:
            message = error
        self._arrived.put((worker, message))


class VirtualOrder:
    """Take messages in the order of their senders' virtual clocks; equal ones by rank."""

    def __init__(self, channel, buffers):
        self._channel, self._buffers = channel, buffers
        self.owed, self._arrived = set(), {}

    def expect(self, worker):
        """The worker has its weights: it owes a message."""
        self.owed.add(worker)

    def take(self):
        """Wait for all messages that are owed; return the earliest as ``ArrivalOrder.take``."""
        clock = virtual.current()
        clock.stop()
        for worker in self.owed - set(self._arrived):
            try:
                self._arrived[worker] = self._channel.receive(worker, self._buffers[worker])
            except Exception as error:
                self.owed.remove(worker)
                return worker, error
        clock.go()
        worker = min(self._arrived, key=lambda worker: (self._arrived[worker].ready, worker))
        message = self._arrived.pop(worker)
        self.owed.remove(worker)
        self._channel.arrive(worker, message)
        return worker, message

    def close(self):
        """Nothing is left to wait for."""
