"""The ranks that average together, and what they exchange messages with.

    gather      every rank gets all messages: it receives (p-1) of them
    vote        each rank decides a part for all: it sends (p-1)/p of a message to those who decide,
                and (p-1)/p of the decisions to all

By default the collectives are torch's, where torch has them on every backend. On the virtual clock
give the library's own, whose messages it times.
"""

import torch
import torch.distributed as dist

from lsdl_lib.communication.collectives import direct_all_to_all
from lsdl_lib.communication.collectives.calling import size_of


class Peers:
    """The ranks of a process group, with their collectives.

    Attributes:
        rank: this process's place in the group; size: number of ranks in it.

    Args:
        group: process group; None is the default group.
        all_reduce: ``fn(tensor, group=…)`` that sums in place.
        all_gather: ``fn(tensor_list, tensor, group=…)``.
        all_to_all: ``fn(output_list, input_list, group=…)``.

    Raises:
        ValueError: this process is not in the group.
    """

    def __init__(
        self,
        group=None,
        all_reduce=dist.all_reduce,
        all_gather=dist.all_gather,
        all_to_all=direct_all_to_all,
    ):
        self.size = size_of(group)
        self.rank = dist.get_rank(group)
        self._group = group
        self._all_reduce, self._all_gather = all_reduce, all_gather
        self._all_to_all = all_to_all

    def mean_(self, vector):
        """Make ``vector`` the average over the ranks, in place, and return it."""
        # Divided first: the sum could overflow where the average does not.
        vector.div_(self.size)
        if vector.numel():
            self._all_reduce(vector, group=self._group)
        return vector

    def gather(self, message, same_size=True):
        """Return the messages of all ranks, in rank order.

        Args:
            message: tuple of contiguous tensors, of the same types on every rank.
            same_size: every rank's tensors have the same sizes. Otherwise the sizes travel first,
                and shorter messages are padded to the longest.
        """
        payload = _as_bytes(message)
        sizes = torch.tensor([part.numel() for part in message], device=payload.device)
        everyone = [sizes] * self.size if same_size else self._all_of(sizes)
        widths = [part.element_size() for part in message]
        lengths = [sum(n * w for n, w in zip(each.tolist(), widths)) for each in everyone]
        padded = payload.new_zeros(max(lengths))
        padded[: payload.numel()] = payload
        return [
            _split(row, each.tolist(), message) for row, each in zip(self._all_of(padded), everyone)
        ]

    def exchange(self, parts):
        """Send ``parts[r]`` to rank r; return what came from each rank, as many elements each.

        Args:
            parts: one vector a rank. Rank r's parts have the same size on every rank.
        """
        mine = parts[self.rank]
        coming = [torch.empty_like(mine) for _ in range(self.size)]
        self._all_to_all(coming, parts, group=self._group)
        return coming

    def _all_of(self, vector):
        if not vector.numel():
            return [vector] * self.size
        rows = [torch.empty_like(vector) for _ in range(self.size)]
        self._all_gather(rows, vector, group=self._group)
        return rows


class Alone:
    """One rank without a process group, for trying a compressor in a single process."""

    rank, size = 0, 1

    def mean_(self, vector):
        """As :meth:`Peers.mean_`: the average over one rank."""
        return vector

    def gather(self, message, same_size=True):
        """As :meth:`Peers.gather`, by the same bytes."""
        return [_split(_as_bytes(message), [part.numel() for part in message], message)]

    def exchange(self, parts):
        """As :meth:`Peers.exchange`."""
        return [parts[0].clone()]


def _as_bytes(message):
    return torch.cat([part.reshape(-1).view(torch.uint8) for part in message])


def _split(row, sizes, like):
    parts, at = [], 0
    for n, part in zip(sizes, like):
        end = at + n * part.element_size()
        # The copy is aligned for its type, which a place among bytes need not be.
        parts.append(row[at:end].clone().view(part.dtype))
        at = end
    return tuple(parts)
