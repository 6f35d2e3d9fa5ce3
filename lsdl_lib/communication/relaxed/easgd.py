"""Elastic averaging: the ranks explore, tied to a common center by springs.

    x_i <- x_i - eta (g_i(x_i) + rho (x_i - c))
    c   <- c + eta rho sum_i (x_i - c)  =  (1 - beta) c + beta (1/p) sum_i x_i

with alpha = eta rho and beta = p alpha, 0.9 in the paper; the elastic terms only every ``period``
steps. The center c is the result. (Zhang, Choromanska, LeCun 2015, equations 5 and 6; synchronous:
every rank keeps a copy of c, which an all-reduce of the differences keeps equal.)

Conserved: what the springs take from the ranks they give to the center, so an exchange leaves
sum_i x_i + c as it is. Progress: it shrinks (1/p) sum_i x_i - c to 1 - alpha - beta of it, and the
ranks' distances from one another to 1 - alpha. With beta = 0 the ranks train alone.

EAMSGD gives each rank Nesterov's momentum:

    v_i <- delta v_i - eta g_i(x_i + delta v_i)
    x_i <- x_i + v_i - eta rho (x_i - c)
"""

import contextlib

import torch
import torch.distributed as dist

from lsdl_lib.communication.relaxed.averager import ModelAverager, mean_
from lsdl_lib.communication.relaxed.flat import FlatTensors


class EASGD(ModelAverager):
    """Tie the model to a center; call ``step`` between ``backward`` and ``optimizer.step()``.

    There the gradient is known, and x is still where it was taken, as the equations want.

    Attributes:
        alpha: the share of its difference that a rank moves in an exchange, beta / p.
        center: c, flat, (n_bytes,) uint8; the same on every rank.

    Args:
        module: the model; rank 0's values are sent to all, and are the first center.
        period: steps from one exchange to the next; the first is after ``period`` steps.
        beta: the share of the ranks' average in the new center, 0 to 1.
        buffers: tie running statistics too.
        group: process group; None is the default group.
        all_reduce: ``fn(tensor, group=…)`` that sums in place.

    Raises:
        ValueError: the ranks' models or settings differ, or a setting cannot work.
    """

    def __init__(
        self,
        module,
        period=1,
        *,
        beta=0.9,
        buffers=True,
        group=None,
        all_reduce=dist.all_reduce,
    ):
        super().__init__(module, group, buffers, period=period, beta=beta)
        if not isinstance(period, int) or period < 1:
            raise ValueError(f"period={period!r}: give a whole number of steps, at least 1")
        if not 0 <= beta <= 1:
            raise ValueError(f"beta={beta!r}: give a share from 0 to 1")
        self.period, self.beta, self.alpha = period, beta, beta / self.size
        self.center = self.flat.read()
        self._all_reduce = all_reduce

    @torch.no_grad()
    def step(self):
        """Count a step, and exchange after each period; return the bytes that were averaged."""
        # The paper exchanges before the first step too, where all ranks are at the center.
        due = self.steps > 0 and self.steps % self.period == 0
        self.steps += 1
        if not due:
            return 0
        values, positions = self.flat.read(), self.positions()
        differences = self.flat.vectors(positions)
        for value, difference, center in zip(
            self.flat.vectors(values), differences, self._centers()
        ):
            value.sub_(difference.sub_(center), alpha=self.alpha)
        self.flat.write(values)
        n_bytes = mean_(differences, self.size, self._all_reduce, self.group)
        for center, mean in zip(self._centers(), differences):
            center.add_(mean, alpha=self.beta)
        return n_bytes

    def positions(self):
        """Return a copy of x, flat: what the springs pull at."""
        return self.flat.read()

    @contextlib.contextmanager
    def at_center(self):
        """Give the model the center's values in the body, to evaluate or to save it."""
        values = self.flat.read()
        self.flat.write(self.center)
        try:
            yield self.module
        finally:
            self.flat.write(values)

    def _centers(self):
        return self.flat.vectors(self.center)

    def state_dict(self):
        """Return the number of steps and the center."""
        return {**super().state_dict(), "center": self.center.clone()}

    def load_state_dict(self, state):
        """Go on from a saved state."""
        super().load_state_dict(state)
        self.center = state["center"].to(self.center.device, copy=True)


class EAMSGD(EASGD):
    """Elastic averaging with Nesterov's momentum, which torch's SGD applies.

    The parameters in torch's form of it are where the gradient is taken, x + delta v, with
    v = -eta times the momentum buffer. The springs pull at x, so the way ahead is taken off first.

    Args:
        module, period, options: as in :class:`EASGD`.
        optimizer: ``torch.optim.SGD`` with ``nesterov=True``.

    Raises:
        ValueError: as in :class:`EASGD`, or it is another optimizer.
    """

    def __init__(self, module, optimizer, period=1, **options):
        super().__init__(module, period, **options)
        groups = optimizer.param_groups
        if not isinstance(optimizer, torch.optim.SGD) or not all(g["nesterov"] for g in groups):
            raise ValueError("EAMSGD needs torch.optim.SGD with nesterov=True and a momentum")
        self.optimizer = optimizer

    def positions(self):
        """Return a copy of x: the parameters without the way ahead, delta v."""
        states, ahead = self.optimizer.state, {}
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                buffer = states.get(parameter, {}).get("momentum_buffer")
                if buffer is not None:
                    ahead[parameter] = group["lr"] * group["momentum"] * buffer
        return FlatTensors(t + ahead.get(t, 0) for t in self.flat.tensors).read()
