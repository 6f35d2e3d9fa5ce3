"""Laws that hold for every compressor. Each rank calls them; a test asserts what they return.

``make`` is a function without arguments that returns a new compressor. ``shapes`` are those of the
tensors that lie one behind the other in a vector. The sums are numpy's, in float64.
"""

import io

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F

from lsdl_lib.communication.compression import (
    Alone,
    CompressionState,
    ErrorFeedback,
    Peers,
    compression_hook,
)
from lsdl_lib.measure import traffic
from lsdl_lib.models import MLP, MLPConfig

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
# A matrix, a vector, one number without and with a dimension, nothing, a filter; 98 numbers.
SHAPES = ((5, 7), (9,), (), (1,), (0, 4), (2, 2, 13))
NOT_FINITE = (float("nan"), float("inf"), -float("inf"))


def size_of(shapes):
    """Numbers in a vector of these shapes."""
    return sum(int(np.prod(shape)) for shape in shapes)


def gradients(shapes, dtype=torch.float32, rank=None, seed=0):
    """Normal numbers, others on every rank and for every seed. (n,)"""
    rank = dist.get_rank() if rank is None else rank
    numbers = np.random.default_rng([seed, rank]).standard_normal(size_of(shapes))
    return torch.tensor(numbers.tolist(), dtype=dtype)  # of no numbers, numpy has a stride of 0


def of_all_ranks(tensor):
    """All ranks' tensors, in rank order, as they are."""
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, tensor)
    return everyone


def same_bits(tensors):
    """Tell whether tensors are equal bit by bit; NaN equals itself."""
    first, *others = [tensor.contiguous().view(torch.uint8) for tensor in tensors]
    return all(torch.equal(first, other) for other in others)


def conservation(make, shapes=SHAPES, dtype=torch.float32, seed=0):
    """p mean + the residuals = the vectors, with one mean on all ranks and nothing written.

    Returns:
        (error, problems): the error as a multiple of what rounding may do, so at most 1 is right,
        and what else is wrong, in words.
    """
    vector = gradients(shapes, dtype, seed=seed)
    before, p = vector.clone(), dist.get_world_size()
    mean, residual = make().aggregate(vector, Peers(), 0, shapes)
    problems = []
    if not torch.equal(vector, before):
        problems.append("the vector was changed")
    if not same_bits(of_all_ranks(mean)):
        problems.append("the ranks' means differ")
    for name, tensor in (("mean", mean), ("residual", residual)):
        if tensor.shape != vector.shape or tensor.dtype != dtype:
            problems.append(f"the {name} is {tensor.dtype} of {tuple(tensor.shape)}")
    vectors, residuals = (
        np.stack([one.double().numpy() for one in of_all_ranks(tensor)])
        for tensor in (vector, residual)
    )
    error = np.abs(p * mean.double().numpy() + residuals.sum(0) - vectors.sum(0))
    # A message says at most |v| + |residual|. Each of p sums rounds it; so do 1/p and the residual.
    size = (np.abs(vectors) + np.abs(residuals)).sum(0)
    allowed = (p + 2) * torch.finfo(dtype).eps * size + p * torch.finfo(dtype).tiny
    return float((error / allowed).max(initial=0)), problems


def progress(make, gradient=(1.0, 0.1), steps=50, dtype=torch.float64):
    """Send one gradient for many steps with error feedback. Case 65 of the list of hard cases.

    The ranks' gradients differ; their mean is ``gradient``.

    Returns:
        (furthest, last): the largest distance, over the steps t and over the numbers, of all that
        was sent from t times the gradient, and that at the end. Bounded: an error that is lost, or
        a small number that is never sent, grows with the steps.
    """
    p, rank = dist.get_world_size(), dist.get_rank()
    mean = torch.tensor(gradient, dtype=dtype)
    mine = mean * 2 * (rank + 1) / (p + 1)
    compressor, peers = ErrorFeedback(make()), Peers()
    sent, away = torch.zeros_like(mean), []
    for step in range(1, steps + 1):
        sent += compressor.aggregate(mine, peers)[0]
        away.append((sent - step * mean).abs().max().item())
    return max(away), away[-1]


def resumes(make, shapes=SHAPES, dtype=torch.float32, steps=3):
    """Save, load into a new compressor, go on: the same bits as without a stop. Case 63."""
    peers = Peers()

    def go(compressor, first):
        results = []
        for step in range(first, first + steps):
            for key in (0, 1):
                vector = gradients(shapes, dtype, seed=2 * step + key)
                results += compressor.aggregate(vector, peers, key, shapes)
        return results

    one, other, file = make(), make(), io.BytesIO()
    go(one, 0)
    torch.save(one.state_dict(), file)
    expected = go(one, steps)  # after saving: what was saved must not change with it
    file.seek(0)
    other.load_state_dict(torch.load(file))
    got = go(other, steps)
    return all(same_bits(pair) for pair in zip(expected, got, strict=True))


def not_finite(make, shapes=SHAPES, dtype=torch.float32):
    """One number of the last rank is NaN or infinite: all ranks must see it, in all tensors alike.

    Returns:
        The (value, place) that some mean was finite for: none is right.
    """
    hidden, n = [], size_of(shapes)
    for value in NOT_FINITE:
        for place in (0, n // 2, n - 1):
            vector = gradients(shapes, dtype)
            if dist.get_rank() == dist.get_world_size() - 1:
                vector[place] = value
            mean, _ = make().aggregate(vector, Peers(), 0, shapes)
            if any(torch.isfinite(one).all() for one in of_all_ranks(mean)):
                hidden.append((value, place))
    return hidden


def recovers(make, shapes=SHAPES, dtype=torch.float32):
    """After a vector that is not finite comes a finite mean: a skipped step leaves no trace."""
    compressor, peers = make(), Peers()
    for step in range(3):
        vector = gradients(shapes, dtype, seed=step)
        if step == 1 and dist.get_rank() == 0:
            vector[0] = float("nan")
        mean, _ = compressor.aggregate(vector, peers, 0, shapes)
    return bool(torch.isfinite(mean).all())


def zeros_stay_zeros(make, shapes=SHAPES, dtype=torch.float32):
    """A gradient of zeros gives zeros and no NaN, now and at the next step. Case 67."""
    vector, compressor = torch.zeros(size_of(shapes), dtype=dtype), make()
    results = [compressor.aggregate(vector, Peers(), 0, shapes) for _ in range(2)]
    return all(torch.equal(tensor, vector) for result in results for tensor in result)


def sent_bytes(compressor, vector, shapes=None):
    """Bytes that this rank sends to average a vector, by the messages that it sends."""
    with traffic() as counted:
        compressor.aggregate(vector, Peers(), 0, shapes)
    return counted.sent_bytes


def deviations(compressor, vector, draws, shapes=None):
    """Compress one vector many times, in a single process.

    Returns:
        (z, squares): the mean's distance from the vector in standard errors, (n,), float64, and
        the average of ||C(v)||^2. A number that never varies must be right to float32's rounding:
        its z is 0 or infinite.
    """
    total, second = (np.zeros(vector.numel()) for _ in range(2))
    for _ in range(draws):
        said = compressor.aggregate(vector, Alone(), 0, shapes)[0].double().numpy()
        total += said
        second += said**2
    mean, true = total / draws, vector.double().numpy()
    variance = np.maximum(second / draws - mean**2, 0) * draws / (draws - 1)
    off, rounding = np.abs(mean - true), 4 * torch.finfo(torch.float32).eps * np.abs(true)
    error = np.sqrt(variance / draws)
    varies = error > rounding
    z = np.where(varies, off / np.where(varies, error, 1), np.where(off <= rounding, 0, np.inf))
    return z, float(second.sum() / draws)


def training(make, wrap, steps=60, rate=0.3, peers=None):
    """Train a small MLP in many buckets through the hook, each rank on its part of the batches.

    Args:
        wrap: makes a data-parallel model with ``register_comm_hook`` of a module.

    Returns:
        (first loss, last loss, parameters equal on all ranks, number of buckets).
    """
    p, rank = dist.get_world_size(), dist.get_rank()
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(64, 40, generator=generator)
    labels = (inputs @ torch.randn(40, 10, generator=generator)).argmax(1)
    torch.manual_seed(0)
    model = wrap(MLP(MLPConfig(hidden=(32, 32))))
    buckets = set()

    def hook(state, bucket):
        buckets.add(bucket.index())
        return compression_hook(state, bucket)

    model.register_comm_hook(CompressionState(make(), peers), hook)
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=rate), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs[rank::p]), labels[rank::p])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    flat = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    return losses[0], losses[-1], same_bits(of_all_ranks(flat)), len(buckets)
