"""A parameter server, sharded over several ranks, synchronous.

The parameters, as one vector of n bytes, are cut in S shards. Server s keeps shard s and the
optimizer state of shard s. In each step a worker pushes to every server its part of the gradient;
the server averages what came, steps its optimizer, and all workers pull the new shard:

    traffic of a server = 2 w n / S bytes for w workers elsewhere, half in, half out
    time of a step >= 2 w (alpha + n beta / S), messages to one server arriving one by one

One server is the star among all-reduces. With every rank both worker and server, S = p, push is a
reduce-scatter and pull an all-gather, with the optimizer between them, and nobody sends more than
in a ring all-reduce.

Sources: Dean et al. 2012 (section 4.1); Li et al. 2014. Theirs are asynchronous or bounded in
staleness; here every step waits for all, so that it equals one process on the global batch.
"""

import torch
import torch.distributed as dist
from torch import nn

from lsdl_lib.communication.collectives.messages import Messages
from lsdl_lib.communication.data_parallel.agreement import (
    agree_on_parameters,
    broadcast_tensors,
    tensors_of,
)


class ParameterServer(nn.Module):
    """A model whose parameters are kept by servers; train with ``loss.backward()`` and ``step()``.

    ::

        model = ParameterServer(model, lambda shard: torch.optim.SGD(shard, lr=0.1), servers=2)
        if model.works:
            loss(model(inputs), labels).backward()
        model.step()                                    # on every rank

    Gradients add up over backward passes until ``step``. ``state_dict`` holds this rank's optimizer
    state too: save it on every rank. A server that does not work knows its shard's parameters only.

    Attributes:
        module: the model.
        works: whether this rank is a worker.
        shard: on a server, the optimizer's parameter, (about n / S elements,); elsewhere None.
        optimizer: of the shard; elsewhere None.

    Args:
        module: the model; its trained parameters have one type. Rank 0's values are sent to all.
        optimizer: ``fn([shard])`` that returns a torch optimizer. It must treat each element alone
            (SGD, Adam), for it sees a piece of a vector, not layers.
        group: process group; None is the default group.
        servers: the first ``servers`` ranks are servers; None: all.
        workers: the last ``workers`` ranks work; None: all.

    Raises:
        ValueError: the numbers do not fit the group, types differ, or the ranks' models differ.
    """

    def __init__(self, module, optimizer, group=None, *, servers=None, workers=None):
        super().__init__()
        self.module = module
        self.group = group if group is not None else dist.group.WORLD
        p, rank = dist.get_world_size(self.group), dist.get_rank(self.group)
        servers, workers = (p if k is None else k for k in (servers, workers))
        if not (1 <= servers <= p and 1 <= workers <= p and servers + workers >= p):
            raise ValueError(
                f"servers={servers!r}, workers={workers!r}: give numbers from 1 to {p} ranks that "
                "leave no rank idle"
            )
        trained = {name: q for name, q in module.named_parameters() if q.requires_grad}
        kinds = sorted({str(q.dtype) for q in trained.values()})
        if len(kinds) != 1:
            raise ValueError(f"trained parameters of types {kinds}: one vector needs one type")
        agree_on_parameters(trained, self.group)
        broadcast_tensors(tensors_of(module), self.group)
        self._parameters_in_order = list(trained.values())
        self._servers, self._workers = range(servers), range(p - workers, p)
        self._rank, self.works = rank, rank in self._workers
        self.shard = self.optimizer = None
        if rank in self._servers:
            # Not a registered parameter: it is part of the module's own.
            self.__dict__["shard"] = nn.Parameter(self._shards(self._values())[rank].clone())
            self.optimizer = optimizer([self.shard])

    def forward(self, *args, **kwargs):
        """Return what the model returns."""
        return self.module(*args, **kwargs)

    @torch.no_grad()
    def step(self):
        """Push gradients, step the servers' optimizers, pull parameters; then forget gradients.

        A parameter without a gradient counts as one with a gradient of 0.
        """
        messages = Messages(self.group)
        values = self._values()
        shards = self._shards(values)
        self._push(messages)
        if self.optimizer is not None:
            self.shard.copy_(shards[self._rank])
            self.optimizer.step()
            shards[self._rank].copy_(self.shard)
        self._pull(messages, shards)
        messages.finish()
        sizes = [q.numel() for q in self._parameters_in_order]
        for parameter, value in zip(self._parameters_in_order, values.split(sizes)):
            parameter.copy_(value.view_as(parameter))
            parameter.grad = None

    def _push(self, messages):
        """Workers send shard s of their gradient to server s, which averages them in rank order."""
        gradient = self._shards(self._gradient()) if self.works else []
        sends = [(gradient[s], s) for s in self._ahead(self._servers) if self.works]
        inbox = {}
        if self.shard is not None:
            inbox = {w: torch.empty_like(self.shard) for w in self._behind(self._workers)}
        for handle in messages.exchange(sends, [(part, w) for w, part in inbox.items()]):
            handle.wait()
        if self.shard is not None:
            if self.works:
                inbox[self._rank] = gradient[self._rank]
            self.shard.grad = torch.zeros_like(self.shard)
            for worker in self._workers:
                # Divided before the sum, which could overflow.
                self.shard.grad += inbox[worker] / len(self._workers)

    def _pull(self, messages, shards):
        """Servers send their shard to all workers."""
        workers = self._ahead(self._workers) if self.shard is not None else []
        sends = [(shards[self._rank], w) for w in workers]
        receives = [(shards[s], s) for s in self._behind(self._servers) if self.works]
        for handle in messages.exchange(sends, receives):
            handle.wait()

    # Each rank begins with the next one: no two send to one rank while another waits.
    def _ahead(self, ranks):
        """Return the others of ``ranks``, the next one first."""
        p = dist.get_world_size(self.group)
        return sorted(set(ranks) - {self._rank}, key=lambda other: (other - self._rank) % p)

    def _behind(self, ranks):
        """Return the others of ``ranks``, the one before first."""
        return self._ahead(ranks)[::-1]

    def _values(self):
        return torch.cat([q.detach().reshape(-1) for q in self._parameters_in_order])  # (n,)

    def _gradient(self):
        parts = [
            torch.zeros_like(q) if q.grad is None else q.grad for q in self._parameters_in_order
        ]
        return torch.cat([part.reshape(-1) for part in parts])  # (n,)

    def _shards(self, vector):
        return vector.tensor_split(len(self._servers))

    def get_extra_state(self):
        """Return the optimizer's state on a server, for ``state_dict``."""
        return self.optimizer.state_dict() if self.optimizer is not None else None

    def set_extra_state(self, state):
        """Go on from a saved state.

        Raises:
            ValueError: it is of a rank that serves where this one does not, or the other way round.
        """
        if (state is None) != (self.optimizer is None):
            raise ValueError("this state was saved with another number of servers: use as many")
        if state is not None:
            self.optimizer.load_state_dict(state)
