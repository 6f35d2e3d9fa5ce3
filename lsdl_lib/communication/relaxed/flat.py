"""Tensors of a model side by side in one piece of memory, so that one message carries all.

Each type has its own vector, a view of the same bytes: sums need a type, messages only need bytes.
Types come in order of size, the widest first, so that every vector is aligned.
"""

import torch


class FlatTensors:
    """Copies of some tensors' values in flat memory, and back.

    Attributes:
        tensors: these tensors, in the order given.
        n_bytes: of all values.

    Args:
        tensors: any shapes and types, on one device.

    Raises:
        ValueError: there are none, or they are on several devices.
    """

    def __init__(self, tensors):
        self.tensors = tensors = list(tensors)
        devices = {tensor.device for tensor in tensors}
        if len(devices) != 1:
            where = ", ".join(sorted(map(str, devices))) or "nowhere"
            raise ValueError(f"tensors are on {where}: give tensors on one device")
        self._device = devices.pop()
        kinds = {tensor.dtype: [] for tensor in sorted(tensors, key=lambda t: -t.element_size())}
        for tensor in tensors:
            kinds[tensor.dtype].append(tensor)
        self._kinds = kinds
        self.n_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def empty(self):
        """Return memory for all values, (n_bytes,) uint8."""
        return torch.empty(self.n_bytes, dtype=torch.uint8, device=self._device)

    def read(self):
        """Return a copy of the values, (n_bytes,) uint8."""
        memory = self.empty()
        for vector, tensors in zip(self.vectors(memory), self._kinds.values()):
            torch.cat([tensor.detach().reshape(-1) for tensor in tensors], out=vector)
        return memory

    def vectors(self, memory):
        """Return one vector a type, views of ``memory``."""
        found, at = [], 0
        for dtype, tensors in self._kinds.items():
            end = at + sum(tensor.numel() for tensor in tensors) * dtype.itemsize
            found.append(memory[at:end].view(dtype))
            at = end
        return found

    @torch.no_grad()
    def write(self, memory):
        """Set the tensors to the values of ``memory``, in place."""
        for vector, tensors in zip(self.vectors(memory), self._kinds.values()):
            parts = vector.split([tensor.numel() for tensor in tensors])
            for tensor, part in zip(tensors, parts):
                tensor.copy_(part.view(tensor.shape))
