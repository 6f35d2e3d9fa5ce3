"""Local SGD: H steps alone, then the average of the parameters.

    x_i <- x_i - eta g_i(x_i)             every step, on each rank i, by its own optimizer
    x_i <- (1/p) sum_j x_j                after every H steps

T steps cost T/H all-reduces of the parameters instead of T of the gradients. With H = 1 and SGD the
ranks take the same steps as with averaged gradients, since the step is linear in the gradient:
conserved by an average is the mean of the ranks' parameters. For strongly convex losses and H up to
about sqrt(T / (p b)), b the batch of a rank, p ranks are p times as fast as one (Stich 2019).

What becomes of the optimizer's momentum when the parameters are averaged is a choice:

- ``"local"``: each rank keeps its own, nothing is sent (torch's averagers, and Lin et al. 2020 by
  default);
- ``"average"``: averaged as the parameters are; one or two vectors more to send;
- ``"reset"``: forgotten, as if the optimizer were new.
"""

import torch.distributed as dist

from lsdl_lib.communication.relaxed.averager import ModelAverager, mean_
from lsdl_lib.communication.relaxed.flat import FlatTensors

MOMENTUM = ("local", "average", "reset")


class LocalSGD(ModelAverager):
    """Average the model after every ``period`` steps of the ranks' own optimizers.

    Call ``step`` after ``optimizer.step()``.

    Attributes:
        rounds: number of averages so far.

    Args:
        module: the model; rank 0's values are sent to all.
        optimizer: the rank's ``torch.optim.Optimizer`` of the module's parameters.
        period: H, steps from one average to the next.
        momentum: ``"local"``, ``"average"`` or ``"reset"``, see above. Averaged is all state of a
            parameter that has its shape and floating-point numbers; a parameter without such state
            on some rank counts as 0 there.
        buffers: average running statistics too.
        group: process group; None is the default group.
        all_reduce: ``fn(tensor, group=…)`` that sums in place.

    Raises:
        ValueError: the ranks' models or settings differ, or a setting cannot work.
    """

    def __init__(
        self,
        module,
        optimizer,
        period,
        *,
        momentum="local",
        buffers=True,
        group=None,
        all_reduce=dist.all_reduce,
        **settings,
    ):
        super().__init__(module, group, buffers, period=period, momentum=momentum, **settings)
        if not isinstance(period, int) or period < 1:
            raise ValueError(f"period={period!r}: give a whole number of steps, at least 1")
        if momentum not in MOMENTUM:
            raise ValueError(f"momentum={momentum!r}: give one of {', '.join(MOMENTUM)}")
        self.optimizer, self.period, self.momentum = optimizer, period, momentum
        self.rounds = 0
        self._all_reduce = all_reduce

    def step(self):
        """Count an optimizer step, and average where a period ends; return the bytes averaged."""
        self.steps += 1
        return self.average() if self.due() else 0

    def due(self):
        """Tell whether a period ends with this step."""
        return self.steps % self.period == 0

    def average(self):
        """Average now, on all ranks alike, for an evaluation or at the end; return the bytes."""
        memory = self.flat.read()
        n_bytes = self._mean(self.flat, memory)
        if self.momentum == "average":
            n_bytes += self._average_momentum()
        elif self.momentum == "reset":
            self.optimizer.state.clear()
        self.rounds += 1
        return n_bytes

    def _average_momentum(self):
        parameters = [p for p in self.module.parameters() if p.requires_grad]
        state = self.optimizer.state
        names = sorted({n for p in parameters for n in _in_its_shape(p, state.get(p, {}))})
        if not names:
            return 0
        # A parameter without state lends zeros, so that all ranks send vectors of the same size.
        momenta = FlatTensors(
            _in_its_shape(p, state.get(p, {})).get(name, p.detach().new_zeros(p.shape))
            for name in names
            for p in parameters
        )
        return self._mean(momenta, momenta.read())

    def _mean(self, flat, memory):
        n_bytes = mean_(flat.vectors(memory), self.size, self._all_reduce, self.group)
        flat.write(memory)
        return n_bytes

    def state_dict(self):
        """Return the numbers of steps and rounds."""
        return {**super().state_dict(), "rounds": self.rounds}

    def load_state_dict(self, state):
        """Go on from a saved state."""
        super().load_state_dict(state)
        self.rounds = state["rounds"]


def _in_its_shape(parameter, state):
    """Return {name: tensor} of the state that is as the parameter: momenta, but no step counts."""
    return {
        name: value
        for name, value in state.items()
        if name != "step" and hasattr(value, "shape") and value.shape == parameter.shape
        if value.is_floating_point()
    }
