"""Post-local SGD: averaged gradients at first, local steps later.

    steps 1 … t':       p.grad <- the average over the ranks, then the optimizer's step
    steps t'+1 …:       local steps; the parameters are averaged at t' + H, t' + 2H, …

Early in training, steps are large and the ranks would drift far apart; later, the noise of local
steps helps generalization. Lin et al. (2020) switch at the first decay of the learning rate.
"""

import contextlib

from lsdl_lib.communication.relaxed.local_sgd import LocalSGD


class PostLocalSGD(LocalSGD):
    """Local SGD that begins after ``start`` steps of data parallelism.

    ::

        with averager.sync():                    # forward and backward
            loss_of(model(inputs)).backward()
        optimizer.step()
        averager.step()

    Args:
        model: a data-parallel wrapper with ``module`` and ``no_sync()``: ours or torch's.
        optimizer: the rank's optimizer of the model's parameters.
        start: t', steps with averaged gradients.
        period: H, local steps from one average to the next.
        options: as in :class:`LocalSGD`.

    Raises:
        ValueError: as in :class:`LocalSGD`, or ``start`` is negative.
    """

    def __init__(self, model, optimizer, start, period, **options):
        super().__init__(model.module, optimizer, period, start=start, **options)
        if not isinstance(start, int) or start < 0:
            raise ValueError(f"start={start!r}: give a whole number of steps, at least 0")
        self.model, self.start = model, start

    @property
    def local(self):
        """Whether the next step is a local one."""
        return self.steps >= self.start

    @contextlib.contextmanager
    def sync(self):
        """Average the gradients of the body's backward pass, if that phase is not over."""
        with self.model.no_sync() if self.local else contextlib.nullcontext():
            yield

    def due(self):
        """Tell whether a period of local steps ends with this step."""
        local_steps = self.steps - self.start
        return local_steps > 0 and local_steps % self.period == 0
