from itertools import chain

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from lsdl_lib.data import ShardedBatches, ShardedSampler, epoch_order

checked = settings(deadline=None, derandomize=True)  # a busy machine is no failure
samples_ = st.integers(0, 60)
ranks_ = st.integers(1, 9)
seeds_ = st.integers(0, 3)
epochs_ = st.integers(0, 3)


@checked
@given(samples_, ranks_, seeds_, epochs_, st.booleans())
def test_every_sample_exactly_once_an_epoch(samples, ranks, seed, epoch, shuffle):
    shards = []
    for rank in range(ranks):
        sampler = ShardedSampler(samples, rank=rank, ranks=ranks, seed=seed, shuffle=shuffle)
        sampler.set_epoch(epoch)
        shards.append(list(sampler))
        assert len(shards[-1]) == len(sampler)
    assert sorted(chain(*shards)) == list(range(samples))
    lengths = [len(shard) for shard in shards]
    assert max(lengths) - min(lengths) <= 1


@checked
@given(samples_, ranks_, seeds_)
def test_drop_uneven_gives_equal_lengths_and_drops_the_end_of_the_order(samples, ranks, seed):
    shards = [
        list(ShardedSampler(samples, rank=rank, ranks=ranks, seed=seed, drop_uneven=True))
        for rank in range(ranks)
    ]
    assert {len(shard) for shard in shards} == {samples // ranks}
    kept = epoch_order(samples, seed=seed, epoch=0)[: samples // ranks * ranks]
    assert sorted(chain(*shards)) == sorted(kept.tolist())


@checked
@given(st.integers(1, 60), st.integers(1, 6), st.integers(1, 4), seeds_, epochs_, st.booleans())
def test_global_batch_is_the_same_at_any_rank_count(samples, ranks, share, seed, epoch, drop):
    size = ranks * share
    alone = ShardedBatches(samples, size, rank=0, ranks=1, seed=seed, drop_last=drop)
    alone.set_epoch(epoch)
    whole = list(alone)
    assert len(whole) == len(alone)
    parts = []
    for rank in range(ranks):
        batches = ShardedBatches(samples, size, rank=rank, ranks=ranks, seed=seed, drop_last=drop)
        batches.set_epoch(epoch)
        parts.append(list(batches))
        assert len(parts[-1]) == len(batches) == len(whole)
    order = epoch_order(samples, seed=seed, epoch=epoch)
    for k, batch in enumerate(whole):
        assert batch.tolist() == order[k * size : (k + 1) * size].tolist()
        assert len(batch) == alone.global_size(k)
        for rank in range(ranks):
            assert parts[rank][k].tolist() == batch[rank::ranks].tolist()
    assert sum(map(len, whole)) == (samples // size * size if drop else samples)


@checked
@given(st.integers(2, 40), seeds_)
def test_order_is_a_permutation_that_seed_and_epoch_decide(samples, seed):
    order = epoch_order(samples, seed=seed, epoch=1)
    assert sorted(order.tolist()) == list(range(samples))
    assert torch.equal(order, epoch_order(samples, seed=seed, epoch=1))


@pytest.mark.parametrize(
    ("first", "second"), [((0, 0), (0, 1)), ((0, 0), (1, 0)), ((0, 1), (1, 0)), ((2, 1), (1, 2))]
)
def test_orders_differ(first, second):
    one, two = (epoch_order(100, seed=seed, epoch=epoch) for seed, epoch in (first, second))
    assert not torch.equal(one, two)


def test_set_epoch_changes_what_is_yielded():
    sampler, batches = ShardedSampler(50, rank=0, ranks=2), ShardedBatches(50, 10, rank=0, ranks=2)
    before = list(sampler), torch.cat(list(batches)).tolist()
    assert before == (list(sampler), torch.cat(list(batches)).tolist())
    sampler.set_epoch(1)
    batches.set_epoch(1)
    after = list(sampler), torch.cat(list(batches)).tolist()
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_without_shuffling_ranks_take_turns():
    assert list(ShardedSampler(7, rank=1, ranks=3, shuffle=False)) == [1, 4]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_data_loader_gives_the_same_batches(ranks):
    x = torch.arange(40.0)
    for rank in range(ranks):
        sampler = ShardedSampler(40, rank=rank, ranks=ranks, seed=5)
        loader = DataLoader(TensorDataset(x), batch_size=8 // ranks, sampler=sampler)
        expected = ShardedBatches(40, 8, rank=rank, ranks=ranks, seed=5)
        for (loaded,), rows in zip(loader, expected, strict=True):
            assert loaded.tolist() == x[rows].tolist()


@pytest.mark.parametrize("ranks", [1, 2, 5, 10])
def test_averaged_gradients_equal_those_of_one_process(ranks):
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weight = torch.ones(4, dtype=torch.float64, requires_grad=True)

    def gradient(rows):
        return torch.autograd.grad((x[rows] @ weight).square().mean(), weight)[0]

    alone = [gradient(rows) for rows in ShardedBatches(30, 10, rank=0, ranks=1, seed=2)]
    shards = [ShardedBatches(30, 10, rank=rank, ranks=ranks, seed=2) for rank in range(ranks)]
    for expected, *rows in zip(alone, *shards, strict=True):
        mean = sum(gradient(part) for part in rows) / ranks
        assert (mean - expected).abs().max() <= 1e-12


def test_short_last_batch_with_global_size_equals_one_process():
    values = torch.arange(1.0, 12.0, dtype=torch.float64)  # 11 samples, global batch 8, 4 ranks
    ranks = [ShardedBatches(11, 8, rank=rank, ranks=4) for rank in range(4)]
    alone = list(ShardedBatches(11, 8, rank=0, ranks=1))
    assert [len(list(batches)[1]) for batches in ranks] == [1, 1, 1, 0]
    for k in range(2):
        total = sum(values[list(batches)[k]].sum() for batches in ranks) / ranks[0].global_size(k)
        assert total == pytest.approx(values[alone[k]].mean().item(), abs=1e-12)


def test_defaults_without_a_process_group_are_one_rank():
    sampler = ShardedSampler(5)
    assert (sampler.rank, sampler.ranks) == (0, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rank": 2, "ranks": 2}, "rank=2 of ranks=2"),
        ({"rank": -1, "ranks": 2}, "rank=-1 of ranks=2"),
        ({"rank": 0, "ranks": 0}, "rank=0 of ranks=0"),
        ({"samples": -1}, "samples=-1 is negative"),
        ({"seed": -1}, "seed=-1 is negative"),
    ],
)
def test_sampler_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        ShardedSampler(**{"samples": 5, **arguments})


def test_negative_epoch():
    with pytest.raises(ValueError, match="epoch=-1 is negative"):
        ShardedSampler(5).set_epoch(-1)


@pytest.mark.parametrize(
    ("batch", "ranks", "advice"), [(32, 3, "take 33"), (1, 4, "take 4"), (0, 2, "take 2")]
)
def test_global_batch_that_ranks_do_not_divide(batch, ranks, advice):
    with pytest.raises(ValueError, match=f"global_batch={batch} .* ranks={ranks}; {advice}"):
        ShardedBatches(100, batch, rank=0, ranks=ranks)


@pytest.mark.parametrize("k", [-1, 2])
def test_global_size_of_no_batch(k):
    with pytest.raises(ValueError, match=f"there is no batch {k}; an epoch has 2"):
        ShardedBatches(11, 8).global_size(k)
