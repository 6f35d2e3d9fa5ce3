"""When what happened in one data-parallel step: computing, gradients that are ready, messages.

    with recorded(model) as step:
        loss(model(inputs), labels).backward()
    step.ready       # {parameter: moment}

Moments are seconds since the forward pass began, on the virtual clock where one runs, else on the
wall's. The record of a run without overlap is all that
:mod:`lsdl_lib.communication.data_parallel.prediction` needs to say what overlap will bring.
"""

import contextlib
from dataclasses import dataclass, field, replace

from lsdl_lib.communication.data_parallel.stream import Stream, now


@dataclass
class Timeline:
    """One rank's step.

    Attributes:
        forward: (start, end) of the forward pass.
        layers: when the forward pass of each layer began, in the order in which they ran.
        backward: (start, end): from the gradient of the model's output to the last gradient.
        ready: {index of a parameter: when its gradient was there}, in that order.
        calls: a :class:`Call` for each all-reduce, in order of their starts.
        end: when all gradients were averages.
    """

    forward: tuple = (0.0, 0.0)
    layers: list = field(default_factory=list)
    backward: tuple = (0.0, 0.0)
    ready: dict = field(default_factory=dict)
    calls: list = field(default_factory=list)
    end: float = 0.0

    def spans(self):
        """Return the bars of a chart: a list of (lane, name, start, end) in seconds."""
        bars = [("compute", "forward", *self.forward), ("compute", "backward", *self.backward)]
        return bars + [("network", str(k), c.start, c.end) for k, c in enumerate(self.calls)]


@contextlib.contextmanager
def recorded(model, layers=()):
    """Record the one step that the body takes: a forward pass and a backward pass of ``model``.

    Args:
        model: a naive, bucketed or overlapped wrapper. Its all-reduces go through a
            :class:`Stream` in the body.
        layers: modules whose forward passes are told apart in ``layers``.

    Yields:
        Timeline: complete after the body.
    """
    timeline = Timeline()
    stream = model.all_reduce if isinstance(model.all_reduce, Stream) else Stream(model.all_reduce)
    begin, before = now(), (stream.log, model.all_reduce)

    def moment():
        return now() - begin

    def on_output(module, inputs, output):
        timeline.forward = (timeline.forward[0], moment())
        output.register_hook(on_gradient_of_output)

    def on_gradient_of_output(gradient):
        timeline.backward = (moment(), 0.0)

    def gradient_ready(index):
        timeline.ready[index] = moment()
        ready(index)

    def average(missing):
        timeline.backward = (timeline.backward[0], moment())
        end(missing)
        timeline.end = moment()

    def on_layer(module, inputs):
        timeline.layers.append(moment())

    ready, end = model.gradient_ready, model.average
    with contextlib.ExitStack() as stack:
        stack.callback(model.register_forward_hook(on_output).remove)
        for layer in layers:
            stack.callback(layer.register_forward_pre_hook(on_layer).remove)
        stack.callback(_restore, model, stream, *before)
        model.gradient_ready, model.average = gradient_ready, average
        model.all_reduce, stream.log = stream, []
        timeline.forward = (moment(), 0.0)
        yield timeline
        timeline.calls = [
            replace(c, called=c.called - begin, start=c.start - begin, end=c.end - begin)
            for c in sorted(stream.log, key=lambda call: call.start)
        ]


def _restore(model, stream, log, all_reduce):
    del model.gradient_ready, model.average  # the class's own again
    model.all_reduce, stream.log = all_reduce, log
