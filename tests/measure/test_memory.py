import weakref

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from lsdl_lib.measure import memory
from lsdl_lib.measure.memory import CATEGORIES

WIDTH, BATCH, FLOAT = 64, 8, 4  # bytes a float


class Recount(TorchDispatchMode):
    """Independent counter: after each operator, add up all unique storages that are alive."""

    def __init__(self, *known):
        super().__init__()
        self.storages, self.peak_bytes = [], 0
        self.see(known)

    def see(self, tree):
        alive = {ref()._cdata for ref in self.storages if ref() is not None}
        for tensor in tree_leaves(tree):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata not in alive:
                alive.add(tensor.untyped_storage()._cdata)
                self.storages.append(weakref.ref(tensor.untyped_storage()))
        self.storages = [ref for ref in self.storages if ref() is not None]
        self.peak_bytes = max(self.peak_bytes, sum(ref().nbytes() for ref in self.storages))

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.see(result)
        return result


def mlp(width=WIDTH):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))


def psi(model):
    return sum(p.numel() for p in model.parameters())


def step(model, optimizer, x):
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


OPTIMIZERS = {  # name: (make, bytes of state a parameter, bytes of state a tensor)
    "SGD": (lambda p: torch.optim.SGD(p, lr=0.1), 0, 0),
    "momentum": (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), FLOAT, 0),
    "AdamW": (lambda p: torch.optim.AdamW(p), 2 * FLOAT, FLOAT),
    "AdamW foreach": (lambda p: torch.optim.AdamW(p, foreach=True), 2 * FLOAT, FLOAT),
}


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_model_states_in_closed_form(name, steps):
    make, a_parameter, a_tensor = OPTIMIZERS[name]
    model, x = mlp(), torch.ones(BATCH, WIDTH)
    optimizer = make(model.parameters())
    with memory(model, optimizer) as m:
        for _ in range(steps):
            step(model, optimizer, x)
    assert m.by_category["parameters"] == FLOAT * psi(model)
    assert m.by_category["gradients"] == FLOAT * psi(model)
    assert m.by_category["optimizer state"] == a_parameter * psi(model) + 4 * a_tensor
    assert tuple(m.by_category) == CATEGORIES
    assert sum(m.by_category.values()) == m.peak_bytes
    assert m.allocator_peak_bytes is None


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_peak_is_an_independent_counter_s_and_torch_s(name):
    make, _, _ = OPTIMIZERS[name]
    peaks = []
    for build in ("memory", "recount", "torch"):
        model, x = mlp(), torch.ones(BATCH, WIDTH)
        optimizer = make(model.parameters())
        if build == "memory":
            with memory(model, optimizer) as m:
                step(model, optimizer, x)
            peaks.append(m.peak_bytes)
        elif build == "recount":
            with Recount(list(model.parameters()), x) as recount:
                step(model, optimizer, x)
            peaks.append(recount.peak_bytes)
        else:
            tracker = MemTracker()
            tracker.track_external(model, optimizer, x)
            with tracker:
                step(model, optimizer, x)
            peaks.append(tracker.get_tracker_snapshot("peak")[x.device]["Total"])
    assert peaks[0] == peaks[1] == peaks[2]


def test_activations_of_a_forward_pass_in_closed_form():
    model = nn.Sequential(nn.Linear(8, 512), nn.ReLU(), nn.Linear(512, 4))
    x = torch.ones(1000, 8)
    with memory(model) as m:
        model(x)
    # While ReLU runs its input and its output are there; it keeps the output for backward.
    assert m.by_category["activations"] == 2 * 1000 * 512 * FLOAT
    assert m.by_category["other"] == x.numel() * FLOAT
    assert m.by_category["gradients"] == m.by_category["optimizer state"] == 0


def test_checkpointing_saves_activations_and_recomputes_them_as_activations():
    blocks = nn.Sequential(*[mlp() for _ in range(6)])
    x = torch.ones(4096, WIDTH)
    peaks = {}
    for kind in ("plain", "checkpointed"):
        with memory(blocks) as m:
            h = x
            for block in blocks:
                h = checkpoint(block, h, use_reentrant=False) if kind != "plain" else block(h)
            h.sum().backward()
        peaks[kind] = m.by_category["activations"]
        blocks.zero_grad()
    a_layer = x.numel() * FLOAT
    scalars = 2 * FLOAT  # the sum and its gradient
    assert peaks["plain"] == 2 * 6 * a_layer + scalars  # each block keeps ReLU's and its own output
    # One a block, its output; and inside the block that is recomputed ReLU's.
    assert peaks["checkpointed"] == (6 + 1) * a_layer + scalars


def test_parameters_in_a_flat_buffer_count_once_and_whole():
    model = mlp()
    flat = torch.cat([p.detach().flatten() for p in model.parameters()] + [torch.zeros(1000)])
    at = 0
    for p in model.parameters():
        p.data, at = flat[at : at + p.numel()].view_as(p), at + p.numel()
    with memory(model) as m:
        model(torch.ones(BATCH, WIDTH))
    assert m.by_category["parameters"] == FLOAT * (psi(model) + 1000)


def test_a_gradient_that_a_hook_takes_away_was_a_gradient():
    model = nn.Linear(512, 512, bias=False)
    seen = []

    def take(parameter):
        seen.append(parameter.grad.sum())
        parameter.grad = None

    model.weight.register_post_accumulate_grad_hook(take)  # before ours
    with memory(model) as m:
        model(torch.ones(1, 512)).sum().backward()
    assert len(seen) == 1
    assert m.by_category["gradients"] == FLOAT * 512 * 512


def test_storage_resize_is_seen():
    gathered, resize = torch.zeros(0), torch.UntypedStorage.resize_
    with memory(device=gathered.device) as m:
        gathered.untyped_storage().resize_(0)
        gathered.add(0)
        gathered.untyped_storage().resize_(4000)
        gathered.untyped_storage().resize_(0)
        torch.zeros(700)
    assert m.peak_bytes == 4000
    assert torch.UntypedStorage.resize_ is resize


def test_what_is_freed_before_the_peak_is_not_part_of_it():
    with memory(device=torch.ones(1).device) as m:
        first = torch.zeros(1000)
        del first
        second = torch.zeros(2000)
        third = torch.zeros(500)
        del second
        fourth = torch.zeros(900)
    assert m.peak_bytes == m.by_category["activations"] == 2500 * FLOAT
    assert third.numel() + fourth.numel() == 1400


def test_without_model_and_optimizer_hooks_find_them():
    def body():
        model = mlp()
        step(model, torch.optim.AdamW(model.parameters()), torch.ones(BATCH, WIDTH))
        return psi(model)

    with memory(device=torch.ones(1).device) as m:
        n = body()
    assert m.by_category["parameters"] == m.by_category["gradients"] == FLOAT * n
    assert m.by_category["optimizer state"] == 2 * FLOAT * n + 4 * FLOAT


def test_fake_tensors_give_the_same_bytes():
    found = []
    for fake in (True, False):
        if fake:
            with FakeTensorMode():
                model, x = mlp(), torch.ones(BATCH, WIDTH)
                optimizer = torch.optim.AdamW(model.parameters())
                with memory(model, optimizer) as m:
                    step(model, optimizer, x)
        else:
            model, x = mlp(), torch.ones(BATCH, WIDTH)
            optimizer = torch.optim.AdamW(model.parameters())
            with memory(model, optimizer) as m:
                step(model, optimizer, x)
        found.append(m.by_category)
    assert found[0] == found[1]


def test_fake_tensors_may_be_larger_than_this_machine():
    with FakeTensorMode():
        model = nn.Linear(500_000, 500_000, bias=False)
        with memory(model) as m:
            model(torch.ones(1, 500_000)).sum().backward()
    assert m.by_category["parameters"] == m.by_category["gradients"] == 10**12
    assert "931 GiB" in repr(m)


def test_nested_bodies_and_exceptions():
    model = mlp()
    before = torch.UntypedStorage.resize_
    with memory(model) as outer:
        kept = torch.zeros(10_000)
        with pytest.raises(RuntimeError, match="shapes"), memory(model) as inner:
            model(torch.ones(BATCH, WIDTH + 1))
    assert inner.by_category["parameters"] == FLOAT * psi(model)
    assert outer.peak_bytes == inner.peak_bytes + FLOAT * kept.numel()
    assert torch.UntypedStorage.resize_ is before
    assert not model[0].weight._post_accumulate_grad_hooks


def test_sparse_tensors_count_indices_and_values():
    embedding = nn.Embedding(1000, 16, sparse=True)
    with memory(embedding) as m:
        embedding(torch.tensor([3, 3, 7])).sum().backward()
    assert m.by_category["gradients"] == 3 * (8 + 16 * FLOAT)
