"""Delay-compensated SGD: correct an old gradient for what has happened to the weights since.

A gradient on the weights v that a worker had becomes one on the server's weights w by a Taylor
step, g(w) = g(v) + H (w - v). The Hessian H is far too large, so the diagonal of g g^T stands for
it, which has its expectation at the optimum of a likelihood (Zheng et al. 2017):

    w <- w - lr (g + lambda g * g * (w - v))                       constant
    m <- a m + (1 - a) g * g,  lambda = lambda_0 / sqrt(m + eps)   adaptive, a number a coordinate

lambda = 0 is plain SGD, and so is one worker alone, whose w - v is 0. The server must keep what it
sent to each worker: p n bytes.
"""

import torch

from lsdl_lib.communication.relaxed.rules import PlainSGD


class DelayCompensatedSGD(PlainSGD):
    """DC-ASGD.

    Args:
        lr: as in :class:`PlainSGD`.
        strength: lambda, or lambda_0 where ``adaptive``.
        adaptive: divide lambda by the root of a running mean of g * g.
        decay: a, of the running mean.
        eps: added to it.

    Raises:
        ValueError: ``strength`` is negative, or ``decay`` is not in [0, 1).
    """

    def __init__(self, lr, strength=0.04, *, adaptive=False, decay=0.95, eps=1e-7):
        super().__init__(lr)
        if not strength >= 0:
            raise ValueError(f"strength={strength!r}: give lambda, at least 0")
        if not 0 <= decay < 1:
            raise ValueError(f"decay={decay!r}: give a number from 0 to below 1")
        self.strength, self.adaptive, self.decay, self.eps = strength, adaptive, decay, eps
        self._mean_square = None  # (n,)

    def update(self, weights, gradient, staleness, seen):
        """Take the step with the corrected gradient."""
        square = gradient * gradient
        strength = self.strength
        if self.adaptive:
            if self._mean_square is None:
                self._mean_square = torch.zeros_like(weights)
            self._mean_square.mul_(self.decay).add_(square, alpha=1 - self.decay)
            strength = self.strength / (self._mean_square + self.eps).sqrt()
        corrected = gradient + strength * square * (weights - seen)
        weights.sub_(corrected, alpha=self.lr)

    def state_dict(self):
        """Return the running mean."""
        return {} if self._mean_square is None else {"mean_square": self._mean_square.clone()}

    def load_state_dict(self, state):
        """Go on with a running mean."""
        self._mean_square = state["mean_square"].clone() if state else None
