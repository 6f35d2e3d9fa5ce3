"""Counting at sizes that no machine has: fake tensors in a fake group."""

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore

from lsdl_lib.measure import traffic


@pytest.fixture
def fake_group():
    dist.init_process_group("fake", store=FakeStore(), rank=3, world_size=64)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("fake_group")
def test_a_fake_group_counts_as_nccl_s_rings_at_any_size():
    with traffic() as real:
        dist.all_reduce(torch.ones(64))
    with FakeTensorMode(), traffic() as fake:
        gradients = torch.ones(64 * 10**9)
        dist.all_reduce(gradients)
        dist.all_reduce(gradients)
        dist.barrier()
    assert real.sent_bytes == 2 * 63 * 4
    assert fake.sent_bytes == 2 * (2 * 63 * 4 * 10**9) + 8
    assert fake.calls == {"all_reduce": 2, "barrier": 1}
    assert fake.assumed["all_reduce"] == "fake, ring: 2(p-1)/p n (as on nccl)"
