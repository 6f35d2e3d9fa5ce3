"""The formulas by themselves: conserved over the ranks, and equal to the closed forms."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsdl_lib.measure import wire_gloo, wire_nccl
from lsdl_lib.measure.wire import NOTHING, Call, Wire

KINDS = ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "gather", "scatter")


def over_ranks(model, kind, n, p, root=0, element_size=1):
    calls = [Call((n,), p, rank, root, element_size) for rank in range(p)]
    return [model.wire(kind, call) for call in calls]


@settings(max_examples=300, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    model=st.sampled_from([wire_gloo, wire_nccl]),
    elements=st.one_of(st.integers(0, 40), st.integers(0, 5 * 2**20)),
    element_size=st.sampled_from([1, 2, 4, 8]),
    p=st.integers(1, 9),
    root=st.integers(0, 8),
)
def test_what_is_sent_is_received(kind, model, elements, element_size, p, root):
    n = elements * element_size
    wires = over_ranks(model, kind, n, p, root % p, element_size)
    total = sum(wires, NOTHING)
    assert total.sent_bytes == total.received_bytes
    assert total.sent_messages == total.received_messages
    if p == 1 or n == 0:
        assert total.sent_bytes == 0
        return
    least = {  # bytes that must cross between ranks, all ranks together
        "all_reduce": 2 * (p - 1) * n,
        "broadcast": (p - 1) * n,
        "reduce": (p - 1) * n,
        "all_gather": p * (p - 1) * n,
        "reduce_scatter": (p - 1) * n,
        "gather": (p - 1) * n,
        "scatter": (p - 1) * n,
    }[kind]
    most = {"reduce": 2 * least + p * n, "reduce_scatter": 2 * least}.get(kind, least)
    assert least <= total.sent_bytes <= most + p * 2  # nccl's rounding up


def test_gloo_ring_in_numbers():
    # 12 floats on 3 ranks: chunks of 4 floats = 16 bytes; 2 of them each way, in halves.
    assert over_ranks(wire_gloo, "all_reduce", 48, 3, element_size=4) == [Wire(64, 64, 8, 8)] * 3
    # 5 floats on 4 ranks: one float a segment, so chunks of 2, 2, 1, 0 floats.
    wires = over_ranks(wire_gloo, "all_reduce", 20, 4, element_size=4)
    sent = [40 - 8 - 0, 40 - 8 - 8, 40 - 4 - 8, 40 - 0 - 4]  # 2n - c_r - c_(r-1)
    received = [40 - 8 - 8, 40 - 8 - 4, 40 - 4 - 0, 40 - 0 - 8]  # 2n - c_r - c_(r+1)
    assert [w.sent_bytes for w in wires] == sent
    assert [w.received_bytes for w in wires] == received


def test_gloo_all_gather_sends_each_share_in_two_halves():
    assert over_ranks(wire_gloo, "all_gather", 100, 4) == [Wire(300, 300, 6, 6)] * 4


def test_gloo_ring_cuts_segments_at_one_mebibyte():
    n = 64 * 2**20
    wires = over_ranks(wire_gloo, "all_reduce", n, 4, element_size=4)
    assert wires == [Wire(2 * 3 * n // 4, 2 * 3 * n // 4, 96, 96)] * 4


def test_gloo_reduce_sends_more_than_needed_once_chunks_are_large():
    small, large = 4 * 2**20, 64 * 2**20
    at_root, other = over_ranks(wire_gloo, "reduce", small, 2, element_size=4)
    assert other == Wire(small, small // 2, 3, 2)  # a chunk around the ring, a chunk to the root
    at_root, other = over_ranks(wire_gloo, "reduce", large, 2, element_size=4)
    around = large - 2 * 2**20  # all but two segments
    assert at_root == Wire(around, around + large // 2, 62, 63)
    assert other == Wire(around + large // 2, around, 63, 62)


def test_gloo_broadcast_is_a_binomial_tree():
    children = [w.sent_messages for w in over_ranks(wire_gloo, "broadcast", 100, 8)]
    assert children == [3, 2, 1, 1, 0, 0, 0, 0]
    children = [w.sent_messages for w in over_ranks(wire_gloo, "broadcast", 100, 6, root=2)]
    assert children == [0, 0, 3, 2, 0, 0]  # places count from the root


def test_gloo_reduce_scatter_costs_an_all_reduce():
    for n, p in [(48, 3), (8 * 2**20, 4)]:
        wires = over_ranks(wire_gloo, "reduce_scatter", n, p, element_size=4)
        assert wires == over_ranks(wire_gloo, "all_reduce", n, p, element_size=4)
        needed = over_ranks(wire_nccl, "reduce_scatter", n, p)
        assert [w.sent_bytes for w in wires] == [2 * w.sent_bytes for w in needed]


@pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 8, 9])
def test_gloo_barrier_disseminates(p):
    steps = math.ceil(math.log2(p))
    assert wire_gloo.wire("barrier", Call((), p, 0)) == Wire(0, 0, steps, steps)


def test_nccl_rings_in_numbers():
    p, n = 4, 1000
    assert over_ranks(wire_nccl, "all_reduce", n, p) == [Wire(1500, 1500, 6, 6)] * p
    assert over_ranks(wire_nccl, "reduce_scatter", n, p) == [Wire(750, 750, 3, 3)] * p
    assert over_ranks(wire_nccl, "all_gather", n, p) == [Wire(3000, 3000, 3, 3)] * p
    broadcast = over_ranks(wire_nccl, "broadcast", n, p, root=1)
    assert [w.sent_bytes for w in broadcast] == [0, n, n, n]  # the ring 1, 2, 3, 0
    reduce = over_ranks(wire_nccl, "reduce", n, p, root=1)
    assert [w.sent_bytes for w in reduce] == [n, 0, n, n]
    assert wire_nccl.wire("barrier", Call((), p, 0)) == Wire(6, 6, 6, 6)


@pytest.mark.parametrize("model", [wire_gloo, wire_nccl])
def test_all_to_all_leaves_out_the_own_part(model):
    call = Call((), 3, 1, to=(10, 20, 30), of=(1, 2, 3))
    assert model.wire("all_to_all", call) == Wire(40, 4, 2, 2)
