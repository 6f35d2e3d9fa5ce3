"""What a server does with a gradient that arrives: the apply rules' interface, and plain SGD.

    w <- w - lr g(w_old)

The gradient was computed on weights that others have changed meanwhile. Its staleness tau is how
many updates they are old. Plain SGD does not care (Dean et al. 2012); other rules do:
:mod:`staleness_aware` and :mod:`delay_compensation`.
"""

import torch


class Rule:
    """How a server changes its weights. A subclass gives ``update``."""

    def update(self, weights, gradient, staleness, seen):
        """Change the weights in place.

        Args:
            weights: (n,) as they are now.
            gradient: (n,), computed on ``seen``; may be changed.
            staleness: updates between ``seen`` and ``weights``.
            seen: (n,) weights that the worker had; not changed.
        """
        raise NotImplementedError

    def state_dict(self):
        """Return what must be saved to go on as if never stopped; empty where there is no state."""
        return {}

    def load_state_dict(self, state):
        """Go on from what ``state_dict`` returned."""


class PlainSGD(Rule):
    """w <- w - lr g, however old the gradient.

    Args:
        lr: learning rate of one push. p workers push p times where all-reduce steps once on their
            average: for the same size of step use lr / p.

    Raises:
        ValueError: ``lr`` is negative.
    """

    def __init__(self, lr):
        if not lr >= 0:
            raise ValueError(f"lr={lr!r}: give a learning rate of at least 0")
        self.lr = lr

    def update(self, weights, gradient, staleness, seen):
        """Take the step."""
        weights.sub_(gradient, alpha=self.lr)


class TorchOptimizer(Rule):
    """Any optimizer of torch at the server, such as the Adagrad of Dean et al. (2012).

    Args:
        make: ``fn(parameters)`` that returns the optimizer, such as
            ``lambda parameters: torch.optim.Adagrad(parameters, lr=0.01)``. It sees the server's
            shard as one vector, so it must work on each number alone.
    """

    def __init__(self, make):
        self._make, self._optimizer, self._state = make, None, None

    def update(self, weights, gradient, staleness, seen):
        """Take the optimizer's step."""
        if self._optimizer is None:
            self._optimizer = self._make([torch.nn.Parameter(weights)])
            if self._state is not None:
                self._optimizer.load_state_dict(self._state)
        (parameter,) = self._optimizer.param_groups[0]["params"]
        parameter.data, parameter.grad = weights, gradient
        self._optimizer.step()

    def state_dict(self):
        """Return the optimizer's state."""
        return {} if self._optimizer is None else self._optimizer.state_dict()

    def load_state_dict(self, state):
        """Give the state to the optimizer, now or when it is made."""
        self._state = state or None
        self._optimizer = None
