"""The ring in segments: the same sums, the ring at one segment, and its closed form."""

import functools
import math

import pytest
import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from lsdl_lib import launch
from lsdl_lib.communication.collectives import pipelined, ring
from lsdl_lib.communication.collectives.calling import all_reduce
from lsdl_lib.communication.cost import Link, closed_forms, counts, simulate
from lsdl_lib.communication.cost.closed_forms import pipelined_all_reduce
from lsdl_lib.measure import traffic
from lsdl_lib.measure.virtual import virtual_clock

LINK = Link(alpha=1e-3, beta=1e-6, gamma=3e-7)
MIB = 2**20


def vectors(p, n, dtype=torch.int64):
    return [torch.arange(n, dtype=dtype) * (rank + 1) + rank for rank in range(p)]


def wrong_sums():
    """Return the (elements, segment bytes) with a wrong sum or a touched neighbor."""
    p, rank, wrong = dist.get_world_size(), dist.get_rank(), []
    for segment_bytes in (8, 40, 800):
        for n in (0, 1, p - 1, p, p + 1, 37 * p + 1, 1000):
            padded = torch.full((n + 2,), -1)
            padded[1:-1] = vectors(p, n)[rank]
            steps = functools.partial(pipelined.pipelined_steps, segment_bytes=segment_bytes)
            all_reduce(steps, padded[1:-1], ReduceOp.SUM, None, False)
            expected = torch.nn.functional.pad(sum(vectors(p, n)), (1, 1), value=-1)
            if not torch.equal(padded, expected):
                wrong.append((n, segment_bytes))
    return wrong


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5])
def test_any_number_of_segments_gives_the_sum(ranks):
    assert launch(wrong_sums, ranks=ranks, timeout=120) == [[]] * ranks


@pytest.mark.parametrize("p", [1, 2, 3, 5, 8])
def test_one_segment_is_the_ring_message_by_message(p):
    segmented = simulate(pipelined.pipelined_steps, vectors(p, 48 * p), LINK)
    assert segmented == simulate(ring.ring_steps, vectors(p, 48 * p), LINK)


@pytest.mark.parametrize(("p", "mib"), [(2, 8), (3, 12), (4, 32), (2, 64)])
def test_the_simulation_takes_the_time_of_the_closed_form(p, mib):
    n = mib * MIB // p // 8 * p
    tensors = vectors(p, n)
    timeline = simulate(pipelined.pipelined_steps, tensors, LINK)
    m = pipelined.segments(p, 8 * n)
    assert m == math.ceil(mib / p / 2) > 1
    assert math.isclose(timeline.seconds, pipelined_all_reduce(p, 8 * n, LINK), rel_tol=1e-5)
    expected = counts.COUNTS["pipelined_all_reduce"](p, 8 * n)
    assert list(zip(timeline.messages, timeline.sent_bytes)) == expected
    assert all(torch.equal(tensor, sum(vectors(p, n))) for tensor in tensors)


def test_segments_hide_the_reductions():
    link, n = Link(alpha=0.0, beta=1e-9, gamma=1e-9), 64 * MIB
    ring_seconds = closed_forms.ring_all_reduce(4, n, link)
    assert math.isclose(ring_seconds - pipelined_all_reduce(4, n, link), 0.75 * n * link.gamma)


def test_what_waits_to_be_reduced_is_a_window_not_a_chunk():
    flat, elsewhere = torch.zeros(64 * MIB // 4), {}

    class Watching:
        rank, size = 0, 2

        def expect(self, receives):
            pass

        def exchange(self, sends, receives):
            for buffer, _ in receives:
                if buffer.untyped_storage().data_ptr() != flat.untyped_storage().data_ptr():
                    elsewhere[buffer.data_ptr()] = buffer.numel() * buffer.element_size()
            return []

    for _ in pipelined.pipelined_steps(flat, torch.Tensor.add_, Watching()):
        pass
    assert pipelined.segments(2, 64 * MIB) == 16
    assert list(elsewhere.values()) == [pipelined.SEGMENT_BYTES] * pipelined.WINDOW


def test_real_ranks_count_and_time_the_segments():
    n = 2 * 6 * MIB // 4  # elements: a chunk is three segments
    link = Link(alpha=0.2, beta=1e-7)

    def run():
        with traffic() as seen, virtual_clock(link) as clock:
            pipelined.pipelined_all_reduce(torch.ones(n))
        return seen.sent_bytes - 8 * 6, clock.now

    expected = pipelined_all_reduce(2, 4 * n, link)
    for sent, seconds in launch(run, ranks=2, threads=1, timeout=60):
        assert sent == 4 * n  # besides the six clocks that travel with the messages
        assert expected <= seconds <= 1.05 * expected
