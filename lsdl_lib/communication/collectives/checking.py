"""The checked mode: before a collective sends anything, all ranks agree on what they were given.

Ranks that give a collective different sizes, types, operations or roots, or that call different
collectives, wait for ever, read each other's bytes as something else, or end the process. With
torch's debug level at DETAIL every collective of this package first gathers all ranks' calls, and
all ranks raise the same error, which says who gave what:

    TORCH_DISTRIBUTED_DEBUG=DETAIL python …         or, on every rank at the same place,
    dist.set_debug_level(dist.DebugLevel.DETAIL)

It costs two small messages between every two ranks, which ``traffic`` counts, and all wait for the
slowest rank: find a fault with it, and measure without. At other levels it costs one comparison.

Groups made at level DETAIL check torch's own collectives too, by numbers that torch 2.13 also
gives to messages: where ranks differ in how many messages they have sent and received, torch takes
its next collective on the group for a mismatch. ``launch`` makes its group without that check.
"""

import functools
import itertools
import pickle
from dataclasses import dataclass

import torch
import torch.distributed as dist

from lsdl_lib.communication.collectives.messages import _FIRST_TAG, _TAGS_A_CALL, Messages

# The comparison's tags are below those of the collectives: ranks may be at different calls.
_TAG = _FIRST_TAG - 2
# Fields of a call that must be the same on every rank, and how to say what a rank has.
_SAME = {
    "given": "has {}",
    "op": "reduces by {}",
    "root": "has root {}",
    "options": "has {}",
    "number": "is at call {} of this group",
}


@dataclass(frozen=True)
class Call:
    """One rank's call of a collective.

    Attributes:
        name: the collective's.
        given: what must be the same on every rank of the tensors: shape and type, in words.
        op, root, options: in words; empty where there is none.
        number: of this call among the rank's calls on the group; each comparison counts too.
        gives, takes: elements for and from each rank, by its place in the group; () where the
            collective moves no pieces, None where there is nothing for or from the place.
        alike: all pieces must have one size.
    """

    name: str
    given: str
    op: str = ""
    root: str = ""
    options: str = ""
    number: int = 1
    gives: tuple = ()
    takes: tuple = ()
    alike: bool = False


def agree(
    collective, group, tensor=None, *, op=None, root=None, gives=None, takes=None, alike=False
):
    """In checked mode, compare this call with the other ranks' calls.

    Args:
        collective: its name, or the generator function ``<method>_steps`` of an all-reduce.
        group: process group; None is the default group.
        tensor: has the same shape on every rank; None for collectives of pieces.
        op: the reduction.
        root: the global rank of the root.
        gives, takes: the pieces for and from the ranks: a list, or one tensor that is for (from)
            every rank, or the root alone where there is one.
        alike: all pieces must have one size.

    Raises:
        ValueError: the calls differ; with the same text on every rank, before data is sent.
    """
    if dist.get_debug_level() != dist.DebugLevel.DETAIL or dist.get_rank(group) < 0:
        return  # a rank outside the group is refused a little later
    group = group if group is not None else dist.group.WORLD
    members = dist.get_process_group_ranks(group)
    tensors = [*_listed(tensor), *_listed(gives), *_listed(takes)]
    messages = _Comparison(group, tensors[0].device if tensors else None)
    name, options = _name(collective)
    mine = Call(
        name,
        given=_in_words(tensor, tensors),
        op=str(op).removeprefix("RedOpType.") if op is not None else "",
        root=str(root) if root is not None else "",
        options=options,
        number=messages.number,
        gives=_sizes(gives, members, root),
        takes=_sizes(takes, members, root),
        alike=alike,
    )
    found = difference(dict(zip(members, messages.all_gather(mine))))
    if found:
        raise ValueError(found)


class _Comparison(Messages):
    """The messages that bring every rank's :class:`Call` to all."""

    def __init__(self, group, device):
        super().__init__(group)
        self.number = (self._tag - _FIRST_TAG) // _TAGS_A_CALL + 1
        self._tag = _TAG
        self._device = device  # of the data: nccl carries nothing else

    def all_gather(self, call):
        """Return the calls of all ranks, in the order of the group."""
        mine = torch.frombuffer(bytearray(pickle.dumps(call)), dtype=torch.uint8).to(self._device)
        length = torch.tensor([mine.numel()], device=self._device)
        lengths = self._swap(length, [torch.empty_like(length) for _ in range(self.size)])
        texts = self._swap(mine, [mine.new_empty(int(n)) for n in lengths])
        return [pickle.loads(bytes(text.tolist())) for text in texts]

    def _swap(self, mine, places):
        others = [rank for rank in range(self.size) if rank != self.rank]
        places[self.rank] = mine
        handles = self.exchange(
            sends=[(mine, rank) for rank in others],
            receives=[(places[rank], rank) for rank in others],
        )
        for handle in handles:
            handle.wait()
        self.finish()
        return places


def difference(calls):
    """Return in one sentence how calls differ, or "".

    Args:
        calls: {global rank: :class:`Call`}, in the order of the group.
    """
    names = {rank: call.name for rank, call in calls.items()}
    if len(set(names.values())) > 1:
        return f"{_who(names, 'calls {}')}: call the same collective on every rank"
    found = []
    for field, words in _SAME.items():
        values = {rank: getattr(call, field) for rank, call in calls.items()}
        if len(set(values.values())) > 1:
            found.append(_who(values, words))
    found = found or list(itertools.islice(_misfits(calls), 1))
    if not found:
        return ""
    return f"{next(iter(names.values()))}: {'; '.join(found)}: give the same on every rank"


def _misfits(calls):
    """Yield, for each two ranks, where what one gives is not what the other takes."""
    ranks = list(calls)
    for rank, call in calls.items():
        for pieces in (call.gives, call.takes):
            if pieces and len(pieces) != len(ranks):
                yield f"rank {rank} has a list of {len(pieces)} tensors for {len(ranks)} ranks"
    for (i, source), (j, to) in itertools.product(enumerate(ranks), repeat=2):
        gives, takes = calls[source].gives, calls[to].takes
        given, taken = gives[j] if gives else None, takes[i] if takes else None
        if given != taken:
            given, taken = _elements(given), _elements(taken)
            yield f"rank {source} has {given} for rank {to}, which takes {taken}"
    if any(call.alike for call in calls.values()):
        found = {n for call in calls.values() for n in call.gives + call.takes if n is not None}
        if len(found) > 1:
            yield f"the pieces have {', '.join(map(str, sorted(found)))} elements"


def _who(values, words):
    """Return "rank 0 has a, ranks 1, 2 have b" for {0: "a", 1: "b", 2: "b"}."""
    ranks = {}
    for rank, value in values.items():
        ranks.setdefault(value, []).append(str(rank))
    verb, rest = words.split(" ", 1)
    many = {"has": "have", "is": "are"}.get(verb, verb.removesuffix("s"))
    return ", ".join(
        f"rank {of[0]} {verb} {rest.format(value)}"
        if len(of) == 1
        else f"ranks {', '.join(of)} {many} {rest.format(value)}"
        for value, of in ranks.items()
    )


def _listed(tensors):
    """Return one tensor, a list of them or None as a list."""
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors or ())


def _sizes(tensors, members, root):
    """Return the elements for each of ``members``; see ``gives`` and ``takes`` of :func:`agree`."""
    if not isinstance(tensors, torch.Tensor):
        return tuple(tensor.numel() for tensor in _listed(tensors))
    return tuple(tensors.numel() if root in (None, member) else None for member in members)


def _in_words(tensor, tensors):
    types = " and ".join(sorted({str(one.dtype) for one in tensors}))
    if tensor is None:
        return f"tensors of {types}"
    shape = f" in shape {tuple(tensor.shape)}" if tensor.dim() != 1 else ""
    return f"{_elements(tensor.numel())}{shape} of {types}"


def _elements(n):
    return "nothing" if n is None else f"{n} element{'s' * (n != 1)}"


def _name(collective):
    """Return the name and the options of a collective; see :func:`agree`."""
    if isinstance(collective, str):
        return collective, ""
    options = ""
    if isinstance(collective, functools.partial):
        options = ", ".join(f"{key} {value}" for key, value in collective.keywords.items())
        collective = collective.func
    return collective.__name__.removesuffix("steps") + "all_reduce", options
