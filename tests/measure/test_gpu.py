"""The same measurements on GPUs."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from lsdl_lib import launch
from lsdl_lib.launch import device
from lsdl_lib.measure import memory, traffic, wall

pytestmark = pytest.mark.gpu

FLOAT = 4


def test_wall_waits_for_the_gpu():
    x = torch.randn(4096, 4096, device=device())
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def work():
        start.record()
        for _ in range(20):
            x @ x
        end.record()

    timing = wall(work, repeats=6, device=x.device)
    assert timing.median >= 0.9 * start.elapsed_time(end) / 1000


@pytest.mark.parametrize("fused", [True, False])
def test_model_states_in_closed_form(fused):
    model = nn.Sequential(nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 2048)).to(device())
    optimizer = torch.optim.AdamW(model.parameters(), fused=fused)
    x = torch.ones(8, 2048, device=device())
    with memory(model, optimizer) as m:
        for _ in range(2):
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    psi = sum(p.numel() for p in model.parameters())
    assert m.device == x.device
    assert m.by_category["parameters"] == m.by_category["gradients"] == FLOAT * psi
    assert 2 * FLOAT * psi <= m.by_category["optimizer state"] <= 2 * FLOAT * psi + 4 * FLOAT
    # The allocator also sees rounding, scratch space and whatever was there before.
    assert m.peak_bytes <= m.allocator_peak_bytes


def all_reduce_and_send(n):
    rank, p = dist.get_rank(), dist.get_world_size()
    x = torch.ones(n, device=device())
    with traffic() as t:
        dist.all_reduce(x)
        dist.barrier()
        if p > 1:
            works = dist.batch_isend_irecv(
                [
                    dist.P2POp(dist.isend, x, (rank + 1) % p),
                    dist.P2POp(dist.irecv, torch.empty_like(x), (rank - 1) % p),
                ]
            )
            for work in works:
                work.wait()
    return dict(t.by_op), t.assumed


def test_nccl():
    p, n = min(2, torch.cuda.device_count()), 1_000_000
    for by_op, assumed in launch(all_reduce_and_send, n, ranks=p, backend="nccl", timeout=120):
        assert by_op["all_reduce"] == 2 * (p - 1) * FLOAT * n // p
        assert by_op.get("send", 0) == (p - 1) * FLOAT * n
        assert assumed["all_reduce"] == "nccl, ring: 2(p-1)/p n"
