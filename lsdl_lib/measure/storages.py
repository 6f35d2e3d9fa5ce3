"""Follow every tensor storage of one device from birth to death, and remember the peak.

A ``TorchDispatchMode`` sees all operators, backward and optimizer included. Each storage that an
operator returns or takes is a :class:`Block`; a weak reference says when it is freed. After every
operator the bytes alive are compared with the peak so far.

What a block *is* often shows only later: a tensor made in backward becomes a gradient, one made in
the optimizer's step its state. So blocks are labeled whenever it shows, and the peak is read at
the end from the blocks that were alive then, with the labels that they have by then.

Cost: up to 0.1 ms an operator. Not seen: scratch space that a kernel allocates inside
itself, and the allocator's rounding.
"""

from collections import Counter
from dataclasses import dataclass
from functools import wraps

import torch
from torch._guards import active_fake_mode
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves
from torch.utils.weak import weakref


@dataclass(eq=False)
class Block:
    """One storage: its bytes, what it is for, and its place in the order of births."""

    bytes: int
    label: str
    born: int


def storages_of(tensor):
    """Yield the untyped storages behind ``tensor``: its own, or those of what it wraps."""
    if is_traceable_wrapper_subclass(tensor):  # DTensor and the like
        for name in tensor.__tensor_flatten__()[0]:
            inner = getattr(tensor, name)
            if isinstance(inner, torch.Tensor):
                yield from storages_of(inner)
    elif tensor.is_sparse:
        yield from storages_of(tensor._indices())
        yield from storages_of(tensor._values())
    elif tensor.layout == torch.strided:
        yield tensor.untyped_storage()


class Storages(TorchDispatchMode):
    """Bytes of the storages on ``device`` that are touched while this mode is on.

    Args:
        device: ``torch.device``; storages on other devices are left out.
        name_new: function without arguments that gives the label of a storage born now.
        name_old: label of a storage that was there before, seen for the first time.
    """

    def __init__(self, device, name_new, name_old):
        super().__init__()
        self.device = device
        self.name_new, self.name_old = name_new, name_old
        self.bytes = self.peak_bytes = 0
        self._alive = {}  # address of the storage: (block, weak reference)
        self._buried = []  # blocks that died since the peak
        self._births = self._births_at_peak = 0

    def at_peak(self):
        """Return ``{label: bytes}`` of what was alive at the peak."""
        by_label = Counter()
        for block in [block for block, _ in self._alive.values()] + self._buried:
            if block.born <= self._births_at_peak:
                by_label[block.label] += block.bytes
        return by_label

    def label(self, tensor, label):
        """Say what ``tensor`` (or None) is for; it counts from now on if it is new."""
        if tensor is not None:
            self._see(tensor, label, force=True)

    def _see(self, tensor, label, force=False):
        if tensor.device.type != self.device.type:
            return
        if None not in (tensor.device.index, self.device.index) and tensor.device != self.device:
            return
        for storage in storages_of(tensor):
            entry = self._alive.get(storage._cdata)
            if entry is None:
                self._bear(storage, label)
            else:
                self._resized(entry[0], storage.nbytes())
                if force:
                    entry[0].label = label

    def _bear(self, storage, label):
        self._births += 1
        block, address = Block(storage.nbytes(), label, self._births), storage._cdata

        def bury(_):
            self._alive.pop(address, None)
            self.bytes -= block.bytes
            self._buried.append(block)

        self._alive[address] = (block, weakref.ref(storage, bury))
        self.bytes += block.bytes
        self._mark()

    def _resized(self, block, size):
        """Count a storage whose size changed as the old block's death and a new one's birth."""
        if size != block.bytes:
            self._buried.append(Block(block.bytes, block.label, block.born))
            self.bytes += size - block.bytes
            self._births += 1
            block.bytes, block.born = size, self._births
            self._mark()

    def _mark(self):
        if self.bytes > self.peak_bytes:
            self.peak_bytes, self._births_at_peak = self.bytes, self._births
            self._buried.clear()  # none of them is part of this peak

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(kind.__name__ == "DTensor" for kind in types):  # its import takes a second
            return NotImplemented  # let it become operators on its local part first
        kwargs = kwargs or {}
        counts = active_fake_mode() is self._fake_mode  # else DTensor is only working out shapes
        if counts:
            for tensor in tree_leaves((args, kwargs)):
                if isinstance(tensor, torch.Tensor):
                    self._see(tensor, self.name_old)
        result = func(*args, **kwargs)
        if counts:
            for tensor in tree_leaves(result):
                if isinstance(tensor, torch.Tensor):
                    self._see(tensor, self.name_new())
        return result

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # the default imports the compiler at the first operator: two seconds

    def __enter__(self):
        self._fake_mode = active_fake_mode()
        self._resize = resize = torch.UntypedStorage.resize_

        @wraps(resize)
        def resize_and_see(storage, size):  # not an operator, so the mode alone would miss it
            resize(storage, size)
            if storage._cdata in self._alive:
                self._resized(self._alive[storage._cdata][0], storage.nbytes())

        torch.UntypedStorage.resize_ = resize_and_see
        return super().__enter__()

    def __exit__(self, *error):
        torch.UntypedStorage.resize_ = self._resize
        return super().__exit__(*error)
