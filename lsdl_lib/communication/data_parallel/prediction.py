"""What overlap will bring, before it is run: an event simulation of a step.

A run that does not overlap is recorded (:mod:`timeline`). It says when each gradient is ready, and
what an all-reduce of a size takes. That is all there is to know:

    bucket k can start  when its last gradient is ready, and those of the buckets before it
    bucket k starts     then, or when bucket k-1 has ended
    bucket k ends       alpha + n beta later
    the step ends       with the backward pass, or with the last bucket

A collective begins when the last rank does, so "ready" is the latest rank's. What messages take
from the processor while it computes is left out.
"""

import statistics
from dataclasses import dataclass
from itertools import pairwise

from lsdl_lib.communication.cost import Link
from lsdl_lib.communication.cost.fitting import fit_line
from lsdl_lib.communication.data_parallel.order import by_priority


@dataclass(frozen=True)
class Profile:
    """What a step computes, in seconds since its begin, on the latest rank.

    Attributes:
        layers: when the forward pass of each layer begins; may be empty.
        forward: when the forward pass is over.
        backward: when the backward pass is over.
        ready: {index of a parameter: when its gradient is ready}.
    """

    layers: tuple
    forward: float
    backward: float
    ready: dict

    @classmethod
    def of(cls, steps):
        """Return the profile of recorded steps: the latest rank's moments, medians over steps.

        Args:
            steps: for each step the :class:`Timeline` of every rank.
        """

        def typical(moment):
            return statistics.median(max(moment(t) for t in ranks) for ranks in steps)

        first = steps[0][0]
        return cls(
            layers=tuple(typical(lambda t, k=k: t.layers[k]) for k in range(len(first.layers))),
            forward=typical(lambda t: t.forward[1]),
            backward=typical(lambda t: t.backward[1]),
            ready={i: typical(lambda t, i=i: t.ready[i]) for i in first.ready},
        )


def fit_calls(steps):
    """Return the :class:`Link` whose alpha and beta fit the all-reduces of recorded steps.

    Its ``seconds(n)`` is the time of a whole all-reduce of n bytes on these ranks. Who comes first
    waits for the others, so a call's time is the shortest of any rank; medians over steps.

    Args:
        steps: as in :meth:`Profile.of`; their calls have at least two sizes.
    """
    sizes, seconds = [], []
    for k, call in enumerate(steps[0][0].calls):
        sizes.append(call.n_bytes)
        shortest = [min(t.calls[k].end - t.calls[k].start for t in ranks) for ranks in steps]
        seconds.append(statistics.median(shortest))
    return Link(*fit_line(sizes, seconds))


@dataclass(frozen=True)
class Prediction:
    """A simulated step.

    Attributes:
        seconds: when all gradients are averages, since the step began.
        buckets: (ready, start, end) of each bucket, in seconds since the step began.
    """

    seconds: float
    buckets: tuple


def predict_overlapped(profile, buckets, seconds):
    """Simulate a step that sends each bucket as soon as its turn has come.

    Args:
        profile: :class:`Profile`.
        buckets: for each bucket, in the order of sending, (indices of parameters, bytes).
        seconds: ``fn(bytes)``, the time of an all-reduce.
    """
    times, ready, end = [], 0.0, 0.0
    for indices, n_bytes in buckets:
        ready = max([ready, *(profile.ready[i] for i in indices)])
        start = max(ready, end)
        end = start + seconds(n_bytes)
        times.append((ready, start, end))
    return Prediction(max(profile.backward, end), tuple(times))


def predict_in_turn(profile, buckets, seconds):
    """Simulate a step that begins to send when the backward pass is over.

    With a bucket for each parameter it is the naive version. Arguments as in
    :func:`predict_overlapped`.
    """
    late = Profile(profile.layers, profile.forward, profile.backward, {})
    late.ready.update({i: profile.backward for indices, _ in buckets for i in indices})
    return predict_overlapped(late, buckets, seconds)


def contents(buckets):
    """Return (indices, bytes) of each :class:`Bucket`, as the predictions take them."""
    return [(b.indices, b.buffer().numel() * b.buffer().element_size()) for b in buckets]


def predict_priority(profile, layers, seconds, steps=8):
    """Simulate a row of steps that send with priorities; return the last one.

    A layer runs forward when the layer before it has, and its own averages are there. Its slices
    are ready when its gradients are; the network always sends the most urgent one that is ready.

    Args:
        profile: :class:`Profile` with ``layers``.
        layers: for each layer, (indices of parameters, bytes of each slice).
        seconds: ``fn(bytes)``, the time of an all-reduce.
        steps: steps in the row, enough for them to become equal.

    Returns:
        Prediction: ``seconds`` from the end of one backward pass to the end of the next; a bucket
        for each slice in the order of sending, with times since the last of them began.
    """
    starts = [*profile.layers, profile.forward]
    forward = [after - start for start, after in pairwise(starts)]
    costs = [[seconds(n) for n in slices] for _, slices in layers]
    arrived, end = [0.0] * len(layers), 0.0
    for _ in range(steps):
        begin = moment = end
        for layer, duration in enumerate(forward):
            moment = max(moment, arrived[layer]) + duration
        late = moment - profile.forward  # how much later than in the profile the loss is there
        end = late + profile.backward
        ready = [late + max(profile.ready[i] for i in indices) for indices, _ in layers]
        sent = by_priority(ready, costs)
        arrived = [0.0] * len(layers)
        for layer, _, _, stop in sent:
            arrived[layer] = stop
    buckets = tuple((ready[k] - begin, s - begin, e - begin) for k, _, s, e in sent)
    return Prediction(end - begin, buckets)
