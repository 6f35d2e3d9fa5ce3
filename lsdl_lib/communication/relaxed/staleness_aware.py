"""Staleness-aware SGD: the older the gradient, the smaller the step.

    w <- w - lr / max(1, tau) g

A gradient that is tau updates old moves the weights as much as one of its tau updates would on
average (Zhang et al. 2016). One worker alone has tau = 0: plain SGD.
"""

from lsdl_lib.communication.relaxed.rules import PlainSGD


class StalenessAwareSGD(PlainSGD):
    """Divide the learning rate by the staleness; ``lr`` as in :class:`PlainSGD`."""

    def update(self, weights, gradient, staleness, seen):
        """Take the step."""
        weights.sub_(gradient, alpha=self.lr / max(1, staleness))
