"""Deep gradient compression: momentum before the selection, so that what waits has momentum too.

    u = m u + g                    momentum of this rank's own gradients
    v = v + u                      what this rank has not sent
    send the largest of v; there v = 0, and u = 0 ("momentum factor masking")

With Nesterov's momentum u = m (u + g), v = v + u + g. A plain optimizer without momentum follows:
w = w - lr mean. Error feedback alone would send a gradient that waited for T steps without the
momentum of these steps ("momentum correction"; Lin et al. 2018, section 3).

Conserved: the sum of all that was sent + v = the sum of all u, element by element. Not conserved:
the momentum that masking drops. With d the u that were masked, over T steps

    sum sent + v + m/(1-m) (u + sum d) = 1/(1-m) sum g                     (u after the last mask)

so each masked element loses m/(1-m) of its momentum. Where nothing is masked and everything is
sent, this is momentum SGD on the mean gradient. With masking, to send everything is SGD *without*
momentum: masking assumes that few elements are sent.
"""

import torch

from lsdl_lib.communication.compression.compressor import Compressor

FINAL_SHARE = 0.001


class DGC(Compressor):
    """Momentum and memory around a compressor that sends some of the numbers as they are.

    A step whose mean is not finite changes nothing: the training loop skips it.

    Args:
        inner: ``TopK(share, by_tensor=True)`` in the paper, or ``SampledTopK``.
        momentum: m, at least 0 and below 1.
        nesterov: use Nesterov's momentum.
        masking: set u to 0 where v was sent.
        clip_norm: clip this rank's gradient to the norm clip_norm / sqrt(p) before it is added to
            the momentum: p independent gradients of that norm add up to clip_norm. The norm is of
            the vector that one call gets: of a bucket, where there are several. None: do not clip.

    Raises:
        ValueError: momentum or clip_norm out of range, or what ``inner`` loses may not be sent
            later: it has a memory of its own, as error feedback has, or it is a vote.
    """

    has_residual = False  # it is in the memory, and would be added twice

    def __init__(self, inner, momentum=0.9, *, nesterov=False, masking=True, clip_norm=None):
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum={momentum!r}: give a number from 0 to below 1")
        if clip_norm is not None and not clip_norm > 0:
            raise ValueError(f"clip_norm={clip_norm!r}: give a norm above 0, or None")
        if not inner.has_residual:
            raise ValueError(
                f"DGC around {type(inner).__name__}: DGC keeps what was not sent, and that cannot. "
                "Give TopK or another compressor without a memory"
            )
        self.inner, self.momentum = inner, momentum
        self.nesterov, self.masking, self.clip_norm = nesterov, masking, clip_norm
        self.memory = {}  # key -> (u, v), each (n,)
        self.by_tensor, self.same_size = inner.by_tensor, inner.same_size

    def aggregate(self, vector, peers, key=0, shapes=None):
        """Add a gradient to the momentum and the memory; average what is sent of the memory.

        Returns:
            (mean, v): v is what this rank has not sent.
        """
        u, v = self._memory(key, vector)
        gradient = self._clipped(vector, peers.size)
        if self.nesterov:
            u = self.momentum * (u + gradient)
            v = v + u + gradient
        else:
            u = self.momentum * u + gradient
            v = v + u
        mean, left = self.inner.aggregate(v, peers, key, shapes)
        # The mean is the same on all ranks, so all decide alike.
        if torch.isfinite(mean).all():
            # What was sent is what v lost. A v of 0 loses nothing, sent or not.
            self.memory[key] = (u.masked_fill(left != v, 0) if self.masking else u, left)
        return mean, self._memory(key, vector)[1]

    def _memory(self, key, vector):
        u, v = self.memory.get(key, (None, None))
        if u is None or u.shape != vector.shape or u.dtype != vector.dtype:
            return torch.zeros_like(vector), torch.zeros_like(vector)
        return u, v

    def _clipped(self, vector, ranks):
        if self.clip_norm is None:
            return vector
        norm = torch.linalg.vector_norm(vector.to(torch.promote_types(vector.dtype, torch.float32)))
        return vector * (self.clip_norm / ranks**0.5 / norm).clamp(max=1).to(vector.dtype)

    def forget(self, key):
        """Start with a momentum and a memory of 0 again."""
        self.memory.pop(key, None)
        self.inner.forget(key)

    def state_dict(self):
        """Return {key: (u, v)} and the inner compressor's state."""
        return {"memory": dict(self.memory), "inner": self.inner.state_dict()}

    def load_state_dict(self, state):
        """Go on from a saved state."""
        self.memory = {key: (u.clone(), v.clone()) for key, (u, v) in state["memory"].items()}
        self.inner.load_state_dict(state["inner"])


def warm_up_share(epoch, final=FINAL_SHARE):
    """Return the share to send in an epoch: 1/4, 1/16, 1/64, 1/256, then ``final``.

    Early on gradients change fast and the old ones are misleading, so the first epochs send more:
    the part that is not sent is 1 - 4^-k, 75, 93.75, 98.4375, 99.609375 and 99.9 % (Lin et al.
    2018, section 3.3). Set ``dgc.inner.share`` to it.

    Args:
        epoch: counted from 0.
        final: the share from the end of the warm-up on.
    """
    return max(final, 4.0 ** -(epoch + 1))
