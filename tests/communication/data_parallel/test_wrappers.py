"""Data parallelism equals one process on the global batch; the hard cases of known libraries."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

from lsdl_lib import launch
from lsdl_lib.communication.collectives import ring_all_reduce
from lsdl_lib.communication.data_parallel import (
    BucketedDataParallel,
    NaiveDataParallel,
    OverlappedDataParallel,
    make_buckets,
)
from lsdl_lib.launch import LaunchError
from lsdl_lib.models import Toy, toy_batch
from tests.communication.data_parallel.models import STEPS, models, relative, train

VERSIONS = {
    "naive": NaiveDataParallel,
    "bucketed": BucketedDataParallel,
    "overlapped": OverlappedDataParallel,
}
SMALL = {"bucket_mb": 0.01, "first_bucket_mb": 0.002}  # many buckets even for small models


def differences(version):
    """Return {model: (largest difference after 20 steps in float64, of float32's gradients)}."""
    p, rank = dist.get_world_size(), dist.get_rank()
    options = {} if version == "naive" else SMALL
    found = {}
    for name in models(torch.float64):
        both = []
        for dtype in (torch.float64, torch.float32):
            alone, batches = models(dtype)[name]
            expected = train(alone, batches)
            wrapped = VERSIONS[version](models(dtype)[name][0], **options)
            got = train(wrapped, batches, slice(rank, None, p))
            if dtype == torch.float64:
                got, expected = list(wrapped.module.parameters()), list(alone.parameters())
            both.append(relative(got, expected))
        found[name] = both
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_equals_one_process_on_the_global_batch(version, ranks):
    for found in launch(differences, version, ranks=ranks, threads=1, timeout=120):
        for model, (parameters, gradients) in found.items():
            assert parameters < 1e-10, f"{model}: parameters after {STEPS} steps in float64"
            assert gradients < 1e-5, f"{model}: gradients in float32"


def every_version(check, *arguments, ranks=2, timeout=60):
    """Run ``check(Version, *arguments)`` for all versions in one launch."""

    def run():
        return {name: check(version, *arguments) for name, version in VERSIONS.items()}

    return launch(run, ranks=ranks, threads=1, timeout=timeout)


def line(*weights):
    """A model x -> w . x whose gradient is x."""
    model = nn.Linear(len(weights) or 1, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([weights or (0.0,)]))
    return model


def test_rank_0_s_values_are_everybody_s():
    def check(version):
        model = nn.BatchNorm1d(2)
        with torch.no_grad():
            model.weight.fill_(dist.get_rank() + 5.0)
            model.running_mean.fill_(dist.get_rank() + 7.0)
        version(model)
        return model.weight.tolist(), model.running_mean.tolist()

    for found in every_version(check):
        assert set(map(str, found.values())) == {"([5.0, 5.0], [7.0, 7.0])"}


def test_running_statistics_are_rank_0_s_before_each_forward_pass():
    def check(version):
        model = version(nn.BatchNorm1d(1, momentum=1.0))
        for k in (1.0, 2.0):
            model(torch.tensor([[k], [k + 2 * dist.get_rank()]]))
            mean = model.module.running_mean.item()
        model.eval()
        model(torch.ones(2, 1))
        return mean, model.module.num_batches_tracked.item()

    first, second = every_version(check)
    assert set(first.values()) == {(2.0, 2)}
    assert set(second.values()) == {(3.0, 2)}  # its own batch came last


@pytest.mark.parametrize("unused", ["unused", "everything"])
def test_case_52_an_unused_parameter_is_named_and_nobody_waits(unused):
    def check(version):
        model = version(Toy(unused), broadcast_buffers=False)
        inputs, labels = toy_batch(4)
        try:
            F.cross_entropy(model(inputs), labels).backward()
        except RuntimeError as error:
            return str(error)

    for found in every_version(check):
        for text in found.values():
            assert text.startswith("no gradient for blocks.3.linear.weight, blocks.3.linear.bias:")
            assert "unused='zero'" in text


def test_case_52_an_unused_parameter_counts_as_zero_when_asked():
    """Rank 0 uses the first weight, rank 1 the second: each average is half of one gradient."""

    def check(version):
        model = nn.ModuleList([line(), line()])
        wrapped = version(model, unused="zero")
        rank = dist.get_rank()
        (model[rank](torch.tensor([[2.0 + rank]]))).sum().backward()
        assert wrapped.module is model
        return [part.weight.grad.item() for part in model]

    for found in every_version(check):
        assert set(map(tuple, found.values())) == {(1.0, 1.5)}


def gradient(model):
    return model.module.weight.grad.item()


def test_case_53_no_sync_counts_where_backward_is_called():
    def check(version):
        model, x = version(line()), torch.tensor([[dist.get_rank() + 1.0]])
        loss = model(x).sum()
        with model.no_sync():
            loss.backward()
        alone = gradient(model)
        model(10 * x).sum().backward()
        both = gradient(model)
        try:
            with model.no_sync():
                raise KeyError
        except KeyError:
            model.zero_grad()
        model(x).sum().backward()
        return alone, both, gradient(model)

    for rank, found in enumerate(every_version(check)):
        # Alone 1 and 2; accumulated (1 + 10) and (2 + 20), whose average is 16.5; then 1.5.
        assert set(found.values()) == {(rank + 1.0, 16.5, 1.5)}


def test_case_54_two_forward_passes_before_two_backward_passes():
    def check(version):
        model, rank = version(line()), dist.get_rank()
        losses = [model(torch.tensor([[x * (rank + 1.0)]])).sum() for x in (1.0, 10.0)]
        for loss in losses:
            loss.backward()
        return gradient(model)

    for found in every_version(check):
        assert set(found.values()) == {16.5}


def test_case_55_a_forward_pass_through_module_is_averaged_too():
    def check(version):
        model = version(line())
        model.module(torch.tensor([[dist.get_rank() + 1.0]])).sum().backward()
        return gradient(model)

    for found in every_version(check):
        assert set(found.values()) == {1.5}


def test_case_56_gradients_agree_at_each_of_three_accumulated_steps():
    def check(version):
        model, rank, seen = version(line()), dist.get_rank(), []
        for step in range(3):
            model.zero_grad(set_to_none=step % 2 == 0)
            with model.no_sync():
                model(torch.tensor([[1.0 + rank + step]])).sum().backward()
            model(torch.tensor([[3.0 * (rank + 1)]])).sum().backward()
            seen.append(gradient(model))
        return tuple(seen)

    for found in every_version(check):
        assert set(found.values()) == {(6.0, 7.0, 8.0)}


def test_case_58_ranks_with_fewer_batches_follow_the_others():
    """Rank 0 has three batches, rank 1 two: the third average is over rank 0 alone."""

    def check(version):
        rank = dist.get_rank()
        model = version(line(), **({} if version is NaiveDataParallel else SMALL))
        optimizer, seen = torch.optim.SGD(model.parameters(), lr=1.0), []
        with model.join():
            for x in (1.0, 2.0, 3.0)[: 3 - rank]:
                optimizer.zero_grad()
                model(torch.tensor([[x * (rank + 1)]])).sum().backward()
                seen.append(gradient(model))
                optimizer.step()
        optimizer.zero_grad()
        model(torch.tensor([[rank + 1.0]])).sum().backward()
        return seen, gradient(model), model.module.weight.item()

    zero, one = every_version(check)
    for found in zero.values():
        assert found == ([1.5, 3.0, 3.0], 1.5, -7.5)
    for found in one.values():
        assert found == ([1.5, 3.0], 1.5, -7.5)


def test_case_59_sparse_gradients_and_a_rank_that_has_none():
    def check(version):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(6, 1, padding_idx=0, sparse=True), nn.Linear(1, 1))
        with torch.no_grad():
            model[1].weight.fill_(1.0)
        wrapped = version(model)
        rows = torch.tensor([0]) if dist.get_rank() == 0 else torch.tensor([2, 5, 5])
        wrapped(rows).sum().backward()
        table = model[0].weight.grad
        return table.is_sparse, table.to_dense().flatten().tolist(), model[1].bias.grad.item()

    for found in every_version(check):
        for result in found.values():
            assert result == (True, [0.0, 0.0, 0.5, 0.0, 0.0, 1.0], 2.0)


def test_case_60_models_in_another_order_are_refused_on_all_ranks():
    def check(version):
        names = ["a", "b"] if dist.get_rank() == 0 else ["b", "a"]
        try:
            version(nn.ModuleDict({name: nn.Linear(2, 2, bias=False) for name in names}))
        except ValueError as error:
            return str(error)

    for found in every_version(check, ranks=3):
        assert set(found.values()) == {
            "parameter 0 is a.weight (2, 2) torch.float32 on rank 0 and b.weight (2, 2) "
            "torch.float32 on rank 1: build the same model, in the same order, on every rank"
        }


def test_a_backward_pass_that_failed_leaves_nothing_behind():
    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise KeyError("in the middle")

    def check(version):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
        wrapped = version(model, **({} if version is NaiveDataParallel else SMALL))
        x = torch.tensor([[dist.get_rank() + 1.0]])
        try:
            model[1](Failing.apply(model[0](x))).sum().backward()
        except KeyError:
            wrapped.zero_grad()
        wrapped(x).sum().backward()
        return [p.grad.flatten().tolist() for p in model.parameters()]

    one, other = every_version(check)
    assert one == other
    assert one["naive"] == one["bucketed"]
    assert one["naive"] == one["overlapped"]


def test_half_precision_is_divided_before_the_sum():
    def check(version):
        model = version(line().half())
        model(torch.full((1, 1), 40000.0, dtype=torch.float16)).sum().backward()
        return gradient(model)

    for found in every_version(check):
        assert set(found.values()) == {40000.0}


def test_our_collectives_do_the_averaging():
    def run():
        model = OverlappedDataParallel(line(), all_reduce=ring_all_reduce)
        model(torch.tensor([[dist.get_rank() + 1.0]])).sum().backward()
        naive = NaiveDataParallel(line(), all_reduce=ring_all_reduce)
        naive(torch.tensor([[dist.get_rank() + 1.0]])).sum().backward()
        return gradient(model), gradient(naive)

    assert launch(run, ranks=3, threads=1, timeout=60) == [(2.0, 2.0)] * 3


def hooked_gradients():
    """Return how far torch's hooks under our wrapper are from torch's DDP with the same hook."""
    inputs, labels = toy_batch(8, seed=dist.get_rank())
    found = {}
    for name, hook, state in (
        ("all-reduce", default_hooks.allreduce_hook, lambda: None),
        ("fp16", default_hooks.fp16_compress_hook, lambda: None),
        (
            "PowerSGD",
            powerSGD_hook.powerSGD_hook,
            lambda: powerSGD_hook.PowerSGDState(None, 1, start_powerSGD_iter=2),
        ),
    ):
        gradients = []
        for wrap in (OverlappedDataParallel, nn.parallel.DistributedDataParallel):
            model = wrap(Toy("plain"))
            model.register_comm_hook(state(), hook)
            for _ in range(4):
                model.zero_grad()
                F.cross_entropy(model(inputs), labels).backward()
            gradients.append([p.grad.clone() for p in model.parameters()])
        found[name] = relative(*gradients)
    return found


def test_torchs_communication_hooks_run_under_ours_as_under_torchs():
    found, same = launch(hooked_gradients, ranks=2, threads=1, timeout=60)
    assert found == same
    assert found["all-reduce"] < 1e-6
    assert found["fp16"] < 1e-6
    assert found["PowerSGD"] < 1e-5


def test_one_hook_only():
    def run():
        model = OverlappedDataParallel(line())
        model.register_comm_hook(None, default_hooks.allreduce_hook)
        model.register_comm_hook(None, default_hooks.allreduce_hook)

    with pytest.raises(LaunchError, match="register only one"):
        launch(run, ranks=1, timeout=60)


def test_buckets_start_in_their_order_whatever_becomes_ready_first():
    """Rank 1's first layer is used last in the forward pass, so its gradients come first."""

    def run():
        rank, started = dist.get_rank(), []
        model = nn.ModuleList([nn.Linear(4, 4) for _ in range(4)])
        wrapped = OverlappedDataParallel(model, bucket_mb=2e-5, first_bucket_mb=2e-5)
        start = wrapped.start
        wrapped.start = lambda bucket: (started.append(bucket.index()), start(bucket))[1]
        x = torch.ones(1, 4)
        for k in range(4) if rank == 0 else reversed(range(4)):
            x = model[k](x)
        x.sum().backward()
        return started, len(wrapped.buckets)

    one, other = launch(run, ranks=2, threads=1, timeout=60)
    assert one == other == (list(range(one[1])), one[1])
    assert one[1] > 3


def test_gradients_are_views_of_the_buckets():
    def check(version):
        model = version(Toy("plain"))
        inputs, labels = toy_batch(4)
        F.cross_entropy(model(inputs), labels).backward()
        if version is NaiveDataParallel:
            return True
        stored = {bucket.buffer().untyped_storage().data_ptr() for bucket in model.buckets}
        return {p.grad.untyped_storage().data_ptr() for p in model.parameters()} == stored

    assert every_version(check) == [dict.fromkeys(VERSIONS, True)] * 2


def test_buckets_hold_reversed_parameters_up_to_their_size():
    mib = 2**18  # float32 elements
    parameters = [torch.zeros(size * mib) for size in (1, 2, 3, 1, 1)]
    buckets = make_buckets(parameters, bucket_mb=4, first_bucket_mb=1)
    assert [bucket.indices for bucket in buckets] == [[4], [3, 2], [1, 0]]
    assert [bucket.is_last() for bucket in buckets] == [False, False, True]
    assert [bucket.index() for bucket in buckets] == [0, 1, 2]
    assert [view.shape for view in buckets[1].gradients()] == [(mib,), (3 * mib,)]


def test_a_small_parameter_before_a_large_one_shares_its_bucket():
    parameters = [torch.zeros(size) for size in (2**18, 5, 2**19, 7)]
    buckets = make_buckets(parameters, bucket_mb=1, first_bucket_mb=1)
    assert [bucket.indices for bucket in buckets] == [[3, 2], [1, 0]]


def test_a_bucket_has_one_type_and_one_parameter_may_exceed_it():
    parameters = [torch.zeros(2**20), torch.zeros(3), torch.zeros(3, dtype=torch.float64)]
    buckets = make_buckets(parameters, bucket_mb=1)
    assert [bucket.indices for bucket in buckets] == [[2], [1, 0]]
    with pytest.raises(ValueError, match="bucket_mb=0: give MiB above 0"):
        make_buckets(parameters, bucket_mb=0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: OverlappedDataParallel(line(), unused="skip"), "unused='skip'"),
        (lambda: OverlappedDataParallel(line().requires_grad_(False)), "nothing to train"),
    ],
)
def test_wrong_models_are_refused(make, words):
    with pytest.raises(LaunchError, match=words):
        launch(make, ranks=1, timeout=60)
