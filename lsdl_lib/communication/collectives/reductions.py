"""The element-wise operations of collectives: ``torch.distributed.ReduceOp`` on this rank."""

import torch
from torch.distributed import ReduceOp

_IN_PLACE = {
    ReduceOp.SUM: torch.Tensor.add_,
    ReduceOp.AVG: torch.Tensor.add_,
    ReduceOp.PRODUCT: torch.Tensor.mul_,
    ReduceOp.MIN: lambda into, other: torch.minimum(into, other, out=into),
    ReduceOp.MAX: lambda into, other: torch.maximum(into, other, out=into),
    ReduceOp.BAND: torch.Tensor.bitwise_and_,
    ReduceOp.BOR: torch.Tensor.bitwise_or_,
    ReduceOp.BXOR: torch.Tensor.bitwise_xor_,
}
_BITWISE = (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)
_ORDERED = (ReduceOp.MIN, ReduceOp.MAX)


def reduction(op, tensor):
    """Return ``(reduce(into, other), divide)`` for ``op`` on tensors like ``tensor``.

    ``reduce`` works in place on ``into``. ``divide`` asks the caller to divide by the number of
    ranks first.

    Raises:
        TypeError: the operation has no meaning for the tensor's type.
        ValueError: the operation is not known here.
    """
    kind = tensor.dtype
    if op not in _IN_PLACE:
        raise ValueError(f"op={op}: use one of {', '.join(str(o) for o in _IN_PLACE)}")
    whole = not (kind.is_floating_point or kind.is_complex)
    if op == ReduceOp.AVG and whole:
        raise TypeError(
            f"an average of {kind} is not a {kind}: sum and divide, or convert to float first"
        )
    if op in _BITWISE and not whole:
        raise TypeError(f"{op} works on bits: {kind} is not an integer type")
    if op in _ORDERED and kind.is_complex:
        raise TypeError(f"{op} needs an order: {kind} has none")
    return _IN_PLACE[op], op == ReduceOp.AVG
