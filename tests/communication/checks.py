"""What the tests of the collectives share: values, memory layouts, and calls with their oracles.

Values differ for every element and every rank (case 39 of the list of hard cases): with equal ones
a wrong order of chunks, or one chunk counted twice and another left out, would go unseen. Oracles
are numpy's, in float64 or in integers that wrap around; they share no code with the library.
"""

import contextlib

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from lsdl_lib.communication import collectives

ALL_REDUCES = (
    "star_all_reduce",
    "ring_all_reduce",
    "doubling_all_reduce",
    "halving_all_reduce",
    "tree_all_reduce",
    "torus_all_reduce",
)
OTHERS = tuple(
    name
    for name in collectives.__all__
    if name not in ALL_REDUCES and name != "hierarchical_all_reduce"
)
FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
MOST_RANKS = 8
GUARD = 77  # what lies beside a tensor in its storage


def fits(name, p):
    """Tell whether a collective runs on p ranks."""
    return p & (p - 1) == 0 or name not in ("doubling_all_gather", "halving_reduce_scatter")


def numbers(n, rank, seed=0):
    """n numbers of 64 bits; an odd factor makes them differ for all elements and ranks below 8."""
    places = np.arange(n, dtype=np.uint64) * np.uint64(MOST_RANKS) + np.uint64(rank)
    return places * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed * 0x2545F491)


def values(n, rank, dtype, seed=0):
    """Numbers of any type; floats between -1 and 1, different for 2 million elements of float32."""
    bits = numbers(n, rank, seed)
    if not (dtype.is_floating_point or dtype.is_complex):
        return torch.from_numpy(bits.astype(np.int64)).to(dtype)
    parts = (bits & np.uint64(2**24 - 1)).astype(np.float64) / 2**23 - 1
    whole = torch.from_numpy(parts)
    return (whole * (1 + 2j) if dtype.is_complex else whole).to(dtype)


def reduced(vectors, op):
    """Return (the reduction, the error that p roundings may make) of tensors of one type."""
    dtype = vectors[0].dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        whole = np.stack([vector.numpy() for vector in vectors])
        ufunc = {
            "SUM": np.add,
            "PRODUCT": np.multiply,
            "MIN": np.minimum,
            "MAX": np.maximum,
            "BAND": np.bitwise_and,
            "BOR": np.bitwise_or,
            "BXOR": np.bitwise_xor,
        }[op]
        return torch.from_numpy(ufunc.reduce(whole, axis=0, dtype=whole.dtype)), 0
    wide = np.complex128 if dtype.is_complex else np.float64
    real = np.stack(
        [vector.to(torch.complex128 if dtype.is_complex else torch.float64) for vector in vectors]
    ).astype(wide)
    p, eps = len(vectors), torch.finfo(dtype).eps
    size = np.abs(real).sum(axis=0)
    exact, error = {
        "SUM": lambda: (real.sum(axis=0), p * eps * size),
        # Each share is divided first: one rounding more, and where it gets very small, absolute.
        "AVG": lambda: (
            real.sum(axis=0) / p,
            (p + 1) * eps * size / p + p * torch.finfo(dtype).smallest_normal * eps,
        ),
        "PRODUCT": lambda: (
            real.prod(axis=0),
            p * eps * np.abs(real.prod(axis=0)) + torch.finfo(dtype).smallest_normal,
        ),
        "MIN": lambda: (real.min(axis=0), 0 * size),
        "MAX": lambda: (real.max(axis=0), 0 * size),
    }[op]()
    return torch.from_numpy(exact), torch.from_numpy(error)


def near(got, expected):
    """Tell whether a tensor is what ``reduced`` says."""
    exact, error = expected
    if isinstance(error, int):
        return torch.equal(got.reshape(-1), exact)
    return bool(((got.reshape(-1).to(exact.dtype) - exact).abs() <= error).all())


def operations(dtype):
    """The names of the operations that have a meaning for a type."""
    if dtype.is_complex:
        return ("SUM", "AVG", "PRODUCT")
    if dtype.is_floating_point:
        return ("SUM", "AVG", "PRODUCT", "MIN", "MAX")
    return ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")


def _rows(n):
    return max(d for d in range(1, n + 1) if n % d == 0 and d * d <= n) if n else 1


# A layout: elements of storage for n elements of tensor, and the tensor as a view of it.
LAYOUTS = {
    "whole": (lambda n: n, lambda base, n: base),
    "slice": (lambda n: n + 20, lambda base, n: base[7 : 7 + n]),
    "column": (lambda n: 3 * n, lambda base, n: base.view(n, 3)[:, 1]),
    "every second": (lambda n: 2 * n, lambda base, n: base[::2]),
    "transposed": (
        lambda n: n,
        lambda base, n: base.view(_rows(n), n // _rows(n)).t(),
    ),
}


def laid_out(tensor, layout):
    """Return the tensor's values in a layout, and a function that tells if all around is whole."""
    n = tensor.numel()
    size, view = LAYOUTS[layout]
    base = torch.full((size(n),), GUARD, dtype=tensor.dtype)
    outside = torch.ones(size(n), dtype=torch.bool)
    view(outside, n).fill_(False)
    inside = view(base, n)
    inside.copy_(tensor.view(inside.shape))
    return inside, lambda: bool((base[outside] == GUARD).all())


def all_reduce_is_right(fn, n, dtype, op="SUM", layout="whole", seed=0, expected=None):
    """Run one all-reduce on this rank; tell whether the result and all around it are right."""
    p, rank = dist.get_world_size(), dist.get_rank()
    if expected is None:
        expected = reduced([values(n, r, dtype, seed) for r in range(p)], op)
    tensor, untouched = laid_out(values(n, rank, dtype, seed), layout)
    shape = tensor.shape
    returned = fn(tensor, op=getattr(ReduceOp, op))
    return returned is None and near(tensor, expected) and tensor.shape == shape and untouched()


def is_right(name, n, dtype=torch.int64, op="SUM", layout="whole", root=0, uneven=True, seed=0):
    """Run one collective of any kind on this rank; tell whether all that it wrote is right.

    Pieces of the ranks differ in size where the collective allows it and ``uneven``.
    """
    fn, p, rank = getattr(collectives, name), dist.get_world_size(), dist.get_rank()
    kind = name.split("_", 1)[1]
    uneven = uneven and name not in ("tree_scatter", "tree_gather")
    sizes = [n + k * uneven for k in range(p)]
    guards = []

    def piece(source, k, size):
        """What rank ``source`` has at place k."""
        return values(size, source, dtype, seed + 1000 * k)

    def put(tensor):
        inside, untouched = laid_out(tensor, layout)
        guards.append(untouched)
        return inside

    def blank(size):
        return put(torch.zeros(size, dtype=dtype))

    def same(tensor, exact):
        return torch.equal(tensor.reshape(-1), exact)

    if kind == "all_reduce":
        return all_reduce_is_right(fn, n, dtype, op, layout, seed)
    if kind == "broadcast":
        tensor = put(piece(rank, 0, n))
        fn(tensor, src=root)
        right = same(tensor, piece(root, 0, n))
    elif kind == "reduce":
        tensor = put(piece(rank, 0, n))
        fn(tensor, dst=root, op=getattr(ReduceOp, op))
        right = rank != root or near(tensor, reduced([piece(r, 0, n) for r in range(p)], op))
    elif kind == "scatter":
        tensor = blank(sizes[rank])
        pieces = [put(piece(root, k, sizes[k])) for k in range(p)] if rank == root else None
        fn(tensor, pieces, src=root)
        right = same(tensor, piece(root, rank, sizes[rank]))
    elif kind == "gather":
        pieces = [blank(sizes[k]) for k in range(p)] if rank == root else None
        fn(put(piece(rank, 0, sizes[rank])), pieces, dst=root)
        right = rank != root or all(same(pieces[k], piece(k, 0, sizes[k])) for k in range(p))
    elif kind == "all_gather":
        pieces = [blank(size) for size in sizes]
        fn(pieces, put(piece(rank, 0, sizes[rank])))
        right = all(same(pieces[k], piece(k, 0, sizes[k])) for k in range(p))
    elif kind == "reduce_scatter":
        inputs = [put(piece(rank, k, sizes[k])) for k in range(p)]
        output = blank(sizes[rank])
        fn(output, inputs, op=getattr(ReduceOp, op))
        right = near(output, reduced([piece(r, rank, sizes[rank]) for r in range(p)], op))
        right = right and all(same(inputs[k], piece(rank, k, sizes[k])) for k in range(p))
    else:
        inputs = [put(piece(rank, k, sizes[k])) for k in range(p)]
        outputs = [blank(sizes[rank]) for _ in range(p)]
        fn(outputs, inputs)
        right = all(same(outputs[k], piece(k, rank, sizes[rank])) for k in range(p))
    return right and all(untouched() for untouched in guards)


def call(name, group=None, n=24, async_op=False):
    """Call one collective on this rank with n float32 elements in all; the size of the group | n.

    Works for a rank that is not in the group too, up to the collective's own refusal.
    """
    p = dist.get_world_size(group) if dist.get_rank(group) >= 0 else dist.get_world_size()
    members = dist.get_process_group_ranks(group) if dist.get_rank(group) >= 0 else [0]
    fn, kind, rank, root = getattr(collectives, name), name.split("_", 1)[1], 0, members[0]
    rank = dist.get_rank()
    whole, mine = torch.ones(n), torch.ones(n // p)
    pieces, others = [[torch.ones(n // p) for _ in range(p)] for _ in range(2)]
    arguments = {
        "all_reduce": (whole,),
        "broadcast": (whole, root),
        "reduce": (whole, root),
        "scatter": (mine, pieces if rank == root else None, root),
        "gather": (mine, pieces if rank == root else None, root),
        "all_gather": (pieces, mine),
        "reduce_scatter": (mine, pieces),
        "all_to_all": (pieces, others),
    }[kind]
    options = {"ranks_per_node": 1} if name == "hierarchical_all_reduce" else {}
    return fn(*arguments, group=group, async_op=async_op, **options)


def error_of(function):
    """Return "<type>: <text>" of the exception that a call raises, or None."""
    try:
        function()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


@contextlib.contextmanager
def debug_level(level):
    """Set torch's debug level in the body, on every rank alike."""
    before = dist.get_debug_level()
    dist.set_debug_level(level)
    try:
        yield
    finally:
        dist.set_debug_level(before)
