"""Every way to communicate, with real gloo ranks: seen once, with the right bytes."""

import threading

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from lsdl_lib import launch
from lsdl_lib.measure import memory, traffic
from lsdl_lib.measure.tap import OPERATORS
from lsdl_lib.measure.traffic import NAMES

P, N = 3, 1200  # ranks; floats a message, so that P cuts it evenly into two segments a rank
M = 4 * N  # bytes of a message
HALF = M // 2

# name: (calls, bytes sent by ranks 0, 1, 2, bytes received by them)
RING = ([M] * P, [M] * P)
ALL_REDUCE = ([2 * 2 * M // 3] * P, [2 * 2 * M // 3] * P)
TWO_ALL_REDUCES = ([2 * 2 * 2 * M // 3] * P, [2 * 2 * 2 * M // 3] * P)
ALL_GATHER = ([2 * M] * P, [2 * M] * P)
ALL_TO_ALL = ([2 * M] * P, [2 * M] * P)
TWICE = {"send": 1, "recv": 1}
EXPECTED = {
    "send and recv": (TWICE, *RING),
    "recv from any source": (TWICE, *RING),
    "isend and irecv": (TWICE, *RING),
    "batch_isend_irecv": (TWICE, *RING),
    "methods of the group": (TWICE, *RING),
    "half precision, 2-D": (TWICE, [HALF] * P, [HALF] * P),
    "no elements": (TWICE, [0] * P, [0] * P),
    "all_reduce": ({"all_reduce": 1}, *ALL_REDUCE),
    "all_reduce, async": ({"all_reduce": 1}, *ALL_REDUCE),
    "all_reduce, complex": ({"all_reduce": 1}, *TWO_ALL_REDUCES),
    "all_reduce, inference mode": ({"all_reduce": 1}, *ALL_REDUCE),
    "all_reduce, functional": ({"all_reduce": 1}, *ALL_REDUCE),
    "all_reduce, another thread": ({"all_reduce": 1}, *ALL_REDUCE),
    "all_reduce in future.then": ({"all_reduce": 2}, *TWO_ALL_REDUCES),
    "all_reduce, coalesced": ({"all_reduce": 1}, *TWO_ALL_REDUCES),
    "all_reduce, sub-group": ({"all_reduce": 1}, [0, M, M], [0, M, M]),
    "all_reduce, sparse": ({"all_reduce": 1}, [2 * (24 + 72)] * P, [2 * (24 + 72)] * P),
    "broadcast": ({"broadcast": 1}, [0, 2 * M, 0], [M, 0, M]),
    "reduce": ({"reduce": 1}, [M, M, 2 * M // 3], [2 * M // 3, 2 * M // 3, 4 * M // 3]),
    "all_gather": ({"all_gather": 1}, *ALL_GATHER),
    "all_gather_into_tensor": ({"all_gather": 1}, *ALL_GATHER),
    "all_gather, coalesced": ({"all_gather": 1}, [4 * M] * P, [4 * M] * P),
    "reduce_scatter": ({"reduce_scatter": 1}, [4 * M] * P, [4 * M] * P),
    "reduce_scatter_tensor": ({"reduce_scatter": 1}, [4 * M] * P, [4 * M] * P),
    "reduce_scatter, coalesced": ({"reduce_scatter": 1}, [8 * M] * P, [8 * M] * P),
    "all_to_all": ({"all_to_all": 1}, *ALL_TO_ALL),
    "all_to_all_single": ({"all_to_all": 1}, *ALL_TO_ALL),
    "all_to_all_single, uneven": ({"all_to_all": 1}, [40, 32, 24], [16, 32, 48]),
    "gather": ({"gather": 1}, [0, M, M], [2 * M, 0, 0]),
    "scatter": ({"scatter": 1}, [2 * M, 0, 0], [0, M, M]),
    "barrier": ({"barrier": 1}, [0] * P, [0] * P),
    "monitored_barrier": ({"monitored_barrier": 1}, [8, 4, 4], [8, 4, 4]),
    "autograd": ({"all_reduce": 2}, *TWO_ALL_REDUCES),
    "DDP, backward": ({"all_reduce": 1}, *ALL_REDUCE),
    "FSDP2": (
        {"all_gather": 1, "reduce_scatter": 1},
        [2 * M // 3 + 4 * M // 3] * P,
        [2 * M // 3 + 4 * M // 3] * P,
    ),
    "nothing": ({}, [0] * P, [0] * P),
}


def routes():
    """The ways by name; set-up that communicates is done here, before counting."""
    rank, group = dist.get_rank(), dist.group.WORLD
    to, of = (rank + 1) % P, (rank - 1) % P
    x, y, wide = torch.ones(N), torch.zeros(N), torch.ones(P * N)
    many, others = [torch.ones(N) for _ in range(P)], [torch.zeros(N) for _ in range(P)]
    pair = dist.new_group([1, 2])
    ddp = DistributedDataParallel(nn.Linear(N, 1, bias=False))
    sharded = fully_shard(
        nn.Linear(N // 3, 3, bias=False), mesh=init_device_mesh(x.device.type, (P,))
    )

    def ring(send, receive):
        """Run both; the even rank sends first, as blocking calls must."""
        for call in (send, receive) if rank == 0 else (receive, send):
            call()

    def wait(*works):
        for work in works:
            work.wait()

    def in_then(future):
        dist.all_reduce(x)
        return future.value()

    def in_thread():
        thread = threading.Thread(target=dist.all_reduce, args=(x,))
        thread.start()
        thread.join()

    def inference():
        with torch.inference_mode():
            dist.all_reduce(torch.ones(N))

    def sparse():
        entries = torch.sparse_coo_tensor([[rank, 7]], torch.ones(2), (10,))
        dist.all_reduce(entries)

    def uneven():
        to_each = [1, 2, 3]  # the same on all ranks: rank r gets r + 1 from each
        into = torch.zeros(P * (rank + 1), dtype=torch.float64)
        dist.all_to_all_single(into, torch.ones(6).double(), [rank + 1] * P, to_each)

    def autograd():
        leaf = torch.ones(N, requires_grad=True)
        torch.distributed.nn.functional.all_reduce(leaf).sum().backward()

    def coalesced():
        with dist._coalescing_manager(group):
            dist.all_reduce(x)
            dist.all_reduce(y)

    half = x.half().view(40, -1)
    return {
        "send and recv": lambda: ring(lambda: dist.send(x, to), lambda: dist.recv(y, of)),
        "recv from any source": lambda: ring(lambda: dist.send(x, to), lambda: dist.recv(y)),
        "isend and irecv": lambda: wait(dist.isend(x, to), dist.irecv(y, of)),
        "batch_isend_irecv": lambda: wait(
            *dist.batch_isend_irecv([dist.P2POp(dist.isend, x, to), dist.P2POp(dist.irecv, y, of)])
        ),
        "methods of the group": lambda: wait(group.send([x], to, 7), group.recv([y], of, 7)),
        "half precision, 2-D": lambda: wait(
            dist.isend(half, to), dist.irecv(torch.empty_like(half), of)
        ),
        "no elements": lambda: wait(dist.isend(x[:0], to), dist.irecv(y[:0], of)),
        "all_reduce": lambda: dist.all_reduce(x),
        "all_reduce, async": lambda: wait(dist.all_reduce(x, async_op=True)),
        "all_reduce, complex": lambda: dist.all_reduce(torch.ones(N, dtype=torch.complex64)),
        "all_reduce, inference mode": inference,
        "all_reduce, functional": lambda: functional.wait_tensor(
            functional.all_reduce(x, "sum", group)
        ),
        "all_reduce, another thread": in_thread,
        "all_reduce in future.then": lambda: (
            dist.all_reduce(x, async_op=True).get_future().then(in_then).wait()
        ),
        "all_reduce, coalesced": coalesced,
        "all_reduce, sub-group": lambda: rank and dist.all_reduce(x, group=pair),
        "all_reduce, sparse": sparse,
        "broadcast": lambda: dist.broadcast(x, 1),
        "reduce": lambda: dist.reduce(x, 2),
        "all_gather": lambda: dist.all_gather(others, x),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(wide, x),
        "all_gather, coalesced": lambda: wait(
            group.allgather_into_tensor_coalesced([wide, wide.clone()], [x, y])
        ),
        "reduce_scatter": lambda: dist.reduce_scatter(x, many),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(x, wide),
        "reduce_scatter, coalesced": lambda: wait(
            group.reduce_scatter_tensor_coalesced([x, y], [wide, wide.clone()])
        ),
        "all_to_all": lambda: dist.all_to_all(others, many),
        "all_to_all_single": lambda: dist.all_to_all_single(torch.zeros(P * N), wide),
        "all_to_all_single, uneven": uneven,
        "gather": lambda: dist.gather(x, others if rank == 0 else None, 0),
        "scatter": lambda: dist.scatter(x, many if rank == 0 else None, 0),
        "barrier": dist.barrier,
        "monitored_barrier": dist.monitored_barrier,
        "autograd": autograd,
        "DDP, backward": lambda: ddp(torch.ones(1, N)).sum().backward(),
        "FSDP2": lambda: sharded(torch.ones(1, N // 3)).sum().backward(),
        "nothing": lambda: torch.ones(3).sum(),
    }


def count_all():
    """Return {route: what this rank counted}, and what an outer count saw of all together."""
    ways, found = routes(), {}
    with traffic() as outer:
        for name, way in ways.items():
            with traffic() as t:
                way()
            found[name] = t.calls, t.sent_bytes, t.received_bytes, t.by_op, t.assumed
    with traffic() as after:
        pass
    dist.all_reduce(torch.ones(3))  # nobody listens any more
    return found, outer.sent_bytes, after.calls


@pytest.fixture(scope="module")
def counted():
    return launch(count_all, ranks=P, timeout=60, backend="gloo")


@pytest.mark.parametrize("name", EXPECTED)
def test_route(counted, name):
    calls, sent, received = EXPECTED[name]
    for rank, (found, _, _) in enumerate(counted):
        outside = name.endswith("sub-group") and rank == 0
        assert found[name][0] == ({} if outside else calls)
        assert found[name][1:3] == (sent[rank], received[rank]), f"rank {rank}"
        assert sum(found[name][3].values()) == sent[rank]


def test_no_route_is_left_out(counted):
    assert set(counted[0][0]) == set(EXPECTED)


def test_an_outer_count_sees_what_the_inner_ones_see(counted):
    for found, outer_sent, after in counted:
        assert outer_sent == sum(one[1] for one in found.values())
        assert after == {}


def test_assumed_names_the_backend_and_the_formula(counted):
    found, _, _ = counted[0]
    assert found["send and recv"][4] == {}
    assert found["all_reduce"][4]["all_reduce"].startswith("gloo, ring: 2n - c_r")
    assert "all-reduce of the whole input" in found["FSDP2"][4]["reduce_scatter"]
    assert "as many entries as this rank" in found["all_reduce, sparse"][4]["all_reduce"]


def test_every_operator_that_takes_a_group_is_known():
    """A new torch may bring a new way to communicate: then it is time to count it."""
    schemas = torch._C._jit_get_all_schemas()
    communicate = {
        s.name[6:] for s in schemas if s.name[:6] == "c10d::" and "ProcessGroup" in str(s)
    }
    assert communicate == set(OPERATORS) == set(NAMES)


def fails_and_goes_on():
    def too_few_outputs():
        dist.all_reduce(torch.ones(4))
        dist.all_gather([torch.ones(4)], torch.ones(4))

    with traffic() as failed, pytest.raises(RuntimeError, match="invalid output tensor list"):
        too_few_outputs()

    def count():
        with traffic() as t:
            counts.append(t)
            dist.all_reduce(torch.ones(N))
            raise ValueError("unrelated")

    counts = []
    with pytest.raises(ValueError, match="unrelated"):
        count()
    dist.all_reduce(torch.ones(3))
    return dict(failed.calls), counts[0].sent_bytes, repr(counts[0])


def test_exceptions_end_the_count_and_keep_it():
    for calls, sent, text in launch(fails_and_goes_on, ranks=2, timeout=60, backend="gloo"):
        assert calls == {"all_reduce": 1}  # the all-gather raised
        assert sent == M
        assert text.startswith("Traffic(sent 4.80 kB in 4 messages, received 4.80 kB in 4 messages")
        assert text.endswith("calls: all_reduce 1)")


def counts_and_memory():
    model = nn.Linear(N, 1, bias=False)
    with memory(model) as m, traffic() as t:
        model(torch.ones(1, N)).sum().backward()
        dist.all_reduce(model.weight.grad)
    with traffic() as u, memory(model) as n:
        model(torch.ones(1, N)).sum().backward()
        dist.all_reduce(model.weight.grad)
    return t.sent_bytes, u.sent_bytes, m.by_category["gradients"], n.by_category["gradients"]


def test_memory_and_traffic_together():
    for found in launch(counts_and_memory, ranks=2, timeout=60, backend="gloo"):
        assert found == (M, M, M, M)


def test_without_a_process_group_there_is_nothing_to_count():
    with traffic() as t:
        torch.ones(3).sum()
    assert not t.calls
    assert repr(t) == "Traffic(sent 0 B in 0 messages, received 0 B in 0 messages; calls: none)"
