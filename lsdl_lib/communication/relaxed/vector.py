"""A model's parameters as one vector, and back."""

import torch


class ParameterVector:
    """Copies between parameters and vectors in the memory that messages are sent from.

    Attributes:
        values: (n,) the parameters, after :meth:`read`.
        gradients: (n,) their gradients, after :meth:`read_gradients`.

    Raises:
        ValueError: there are none, or their types differ.
    """

    def __init__(self, parameters):
        self._parameters = list(parameters)
        types = {parameter.dtype for parameter in self._parameters}
        if len(types) != 1:
            raise ValueError(
                f"parameters of types {sorted(map(str, types))}: a server holds one vector of one "
                "type. Give all parameters the same"
            )
        sizes = [parameter.numel() for parameter in self._parameters]
        self.values, self.gradients = (
            torch.zeros(sum(sizes), dtype=types.copy().pop()) for _ in range(2)
        )
        self._views, self._gradient_views = (
            [part.view(p.shape) for part, p in zip(vector.split(sizes), self._parameters)]
            for vector in (self.values, self.gradients)
        )

    @torch.no_grad()
    def read(self):
        """Copy the parameters into ``values``."""
        for view, parameter in zip(self._views, self._parameters):
            view.copy_(parameter)

    @torch.no_grad()
    def write(self):
        """Copy ``values`` into the parameters."""
        for view, parameter in zip(self._views, self._parameters):
            parameter.copy_(view)

    @torch.no_grad()
    def read_gradients(self):
        """Copy the gradients into ``gradients``; a parameter without one counts as 0."""
        for view, parameter in zip(self._gradient_views, self._parameters):
            if parameter.grad is None:
                view.zero_()
            else:
                view.copy_(parameter.grad)


def shards(vector, servers):
    """Return the parts of a vector that servers hold, views whose sizes differ by at most 1."""
    return list(torch.tensor_split(vector, servers))
