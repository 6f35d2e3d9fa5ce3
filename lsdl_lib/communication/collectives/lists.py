"""Lists of tensors as one vector, for the collectives that move a piece a rank."""

import torch


class Pieces:
    """p tensors of this rank's list, as views of one contiguous vector.

    Attributes:
        flat: (sum of the sizes,)
        views: the p pieces of ``flat``, in rank order.
        edges: p + 1 positions where the pieces begin and end.

    Raises:
        ValueError: the list has not one tensor a rank; or, with ``alike``, they differ in size.
        TypeError: its tensors differ in type.
    """

    def __init__(self, tensors, size, what, filled, alike=False):
        tensors = list(tensors) if tensors is not None else []
        if len(tensors) != size:
            raise ValueError(f"{what} has {len(tensors)} tensors: give one a rank, {size}")
        kinds = {tensor.dtype for tensor in tensors}
        if len(kinds) > 1:
            raise TypeError(f"{what} mixes {', '.join(sorted(map(str, kinds)))}: give one type")
        counts = {tensor.numel() for tensor in tensors}
        if alike and len(counts) > 1:
            found = ", ".join(map(str, sorted(counts)))
            raise ValueError(f"{what} has pieces of {found} elements: a tree needs one size")
        self._tensors = [tensor.detach() for tensor in tensors]
        self.edges = [0]
        for tensor in self._tensors:
            self.edges.append(self.edges[-1] + tensor.numel())
        if filled:
            self.flat = torch.cat([tensor.reshape(-1) for tensor in self._tensors])
        else:
            self.flat = self._tensors[0].new_empty(self.edges[-1])
        self.views = [self.flat[a:b] for a, b in zip(self.edges, self.edges[1:])]

    def write_back(self):
        """Copy the pieces to the tensors of the list."""
        for tensor, view in zip(self._tensors, self.views):
            tensor.copy_(view.view(tensor.shape))


def refuse_misfit(place, piece, what, tensor):
    """Raise ValueError when a list's piece differs from ``tensor`` in size or type."""
    if piece.numel() != tensor.numel() or piece.dtype != tensor.dtype:
        raise ValueError(
            f"{place} has {piece.numel()} elements of {piece.dtype}, "
            f"{what} {tensor.numel()} of {tensor.dtype}"
        )
