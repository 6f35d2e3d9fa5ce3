"""The interface of all compressors: compress, decompress, aggregate, residual.

A compressor C maps a vector to a message of fewer bytes and back. Ranks exchange messages and
average what they say:

    mean = 1/p sum over ranks r of C(v_r)
    residual of rank r = v_r - C(v_r)

Conserved: p mean + sum of the residuals = sum of the vectors. What is lost now is known; who adds
the residual to the next vector (:mod:`error_feedback`) loses nothing in the long run.

Messages cannot be added in flight as numbers can. So by default every rank gathers all messages
and decompresses them itself, in rank order: the mean is the same on every rank, bit by bit.
"""

from math import prod

import torch


class Compressor:
    """Base of the compressors. A subclass gives ``compress`` and ``decompress``.

    Attributes:
        unbiased: the expectation of ``decompress(compress(v))`` over its random numbers is v.
        by_tensor: compresses each tensor of a bucket on its own (a scale a layer, a matrix), and
            not the whole bucket as one vector.
        same_size: the sizes of a message depend on the vector's size alone, so that ranks need not
            tell each other.
        has_residual: what ``aggregate`` loses may be added to the next vector.
    """

    unbiased = False
    by_tensor = False
    same_size = True
    has_residual = True

    def compress(self, vector, key=0):
        """Return the message for a vector.

        Args:
            vector: (n,) floats, or a tensor of any shape where ``by_tensor``; not changed.
            key: names the vector from step to step, for compressors with a state.

        Returns:
            Tuple of tensors: what travels, packed.
        """
        raise NotImplementedError

    def decompress(self, message, like):
        """Return what a message says, a new tensor of the shape and type of ``like``."""
        raise NotImplementedError

    def aggregate(self, vector, peers, key=0, shapes=None):
        """Average over ranks what their vectors' messages say.

        Args:
            vector: (n,) floats, of the same size and type on every rank; not changed.
            peers: :class:`lsdl_lib.communication.compression.Peers`.
            key: names the vector from step to step.
            shapes: of the tensors that lie one behind the other in the vector; None: it is one.

        Returns:
            (mean, residual), both (n,): the average, the same on every rank, and what was lost of
            this rank's vector.
        """
        message, read = self.compress_bucket(vector, key, shapes)
        mean, own = torch.zeros_like(vector), None
        gathered = peers.gather(message, self.same_size) if message else [()] * peers.size
        for place, received in enumerate(gathered):
            said = read(received)
            own = said if place == peers.rank else own
            mean.add_(said, alpha=1 / peers.size)
        return mean, vector - own

    def compress_bucket(self, vector, key=0, shapes=None):
        """Return the message for the tensors of a bucket, and what reads one.

        Returns:
            (message, ``fn(message)`` that returns what it says, (n,)): the messages of the tensors
            one after the other.
        """
        parts = self.parts(vector, key, shapes)
        messages = [self.compress(part, name) for name, part in parts]

        def read(received):
            said, pieces = torch.empty_like(vector), iter(received)
            for (_, part), sent, out in zip(parts, messages, self.parts(said, key, shapes)):
                message = tuple(next(pieces) for _ in sent)
                out[1].copy_(self.decompress(message, part))
            return said

        return tuple(tensor for message in messages for tensor in message), read

    def aggregate_(self, vector, peers, key=0, shapes=None):
        """As :meth:`aggregate`; the vector may be overwritten, and returned as the residual.

        If the mean is not finite, the residual does not matter.
        """
        return self.aggregate(vector, peers, key, shapes)

    def parts(self, vector, key, shapes):
        """Return [(key, view of the vector)]: what ``compress`` is called with."""
        if not self.by_tensor:
            return [(key, vector)]
        shapes = [vector.shape] if shapes is None else shapes
        views = vector.split([prod(shape) for shape in shapes])
        return [
            ((key, place), view.view(shape))
            for place, (view, shape) in enumerate(zip(views, shapes, strict=True))
        ]

    def forget(self, key):
        """Drop what is kept for a vector, and for its tensors: it holds other ones from now on."""

    def state_dict(self):
        """Return what must be saved to go on as if never stopped; empty where there is no state."""
        return {}

    def load_state_dict(self, state):
        """Go on from what ``state_dict`` returned."""


class Exact(Compressor):
    """Sends everything as it is: the degenerate case of all compressors, and their baseline."""

    unbiased = True

    def compress(self, vector, key=0):
        """Return the vector itself."""
        return (vector,)

    def decompress(self, message, like):
        """Return the vector."""
        return message[0].view_as(like)

    def aggregate(self, vector, peers, key=0, shapes=None):
        """Average with an all-reduce: numbers can be added on the way."""
        return peers.mean_(vector.clone()), torch.zeros_like(vector)


def message_bytes(message):
    """Return the bytes of a message."""
    return sum(part.numel() * part.element_size() for part in message)
