"""Error feedback: what compression lost of a gradient is added to the next one.

    p = g + e                      e: this rank's error, 0 at first
    mean, residual = aggregate(p)
    e = residual

Over T steps the ranks have sent their gradients' true sum, but for the errors that are left:

    p sum of the means + sum of the errors = sum of all gradients

So a biased compressor, whose steps alone can go the wrong way for ever, converges like the exact
method (Seide et al. 2014; Stich et al. 2018; Karimireddy et al. 2019).

A gradient that is not finite gives a mean that is not finite, on every rank: the training loop
skips that step (as ``torch.amp.GradScaler`` does), and the error stays what it was.
"""

import torch

from lsdl_lib.communication.compression.compressor import Compressor


class ErrorFeedback(Compressor):
    """A compressor with memory around any other.

    The error of a vector whose size or type has changed starts at 0 again.

    Raises:
        ValueError: what the other loses may not be added to the next vector: a vote, or a
            compressor that has error feedback already.
    """

    has_residual = False  # it is in the memory, and would be added twice

    def __init__(self, inner):
        if not inner.has_residual:
            raise ValueError(
                f"error feedback around {type(inner).__name__}: its residual may not be added to "
                "the next vector; use it as it is, or another compressor"
            )
        self.inner = inner
        self.errors = {}  # key -> (n,)
        self.by_tensor, self.same_size = inner.by_tensor, inner.same_size

    def aggregate(self, vector, peers, key=0, shapes=None):
        """Average ``vector`` plus the error of earlier steps; keep what was lost.

        Returns:
            (mean, residual): the residual is the error that the next call with this key adds.
        """
        error = self.errors.get(key)
        if error is None or error.shape != vector.shape or error.dtype != vector.dtype:
            error = torch.zeros_like(vector)
        mean, residual = self.inner.aggregate_(vector + error, peers, key, shapes)
        # The mean is the same on all ranks, so all decide alike.
        self.errors[key] = residual if _all_finite(mean) else error
        return mean, self.errors[key]

    def forget(self, key):
        """Start with an error of 0 again."""
        self.errors.pop(key, None)
        self.inner.forget(key)

    def state_dict(self):
        """Return the errors and the inner compressor's state."""
        return {"errors": dict(self.errors), "inner": self.inner.state_dict()}

    def load_state_dict(self, state):
        """Go on from a saved state."""
        self.errors = {key: error.clone() for key, error in state["errors"].items()}
        self.inner.load_state_dict(state["inner"])


def _all_finite(vector):
    # Least and largest in one pass; torch.isfinite makes copies that cost ten times as much.
    return not vector.numel() or all(end.isfinite() for end in vector.aminmax())
