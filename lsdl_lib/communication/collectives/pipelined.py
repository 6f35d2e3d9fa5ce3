"""All-reduce around a ring in segments: the ring of :mod:`ring`, faster.

    time = 2 (p-1) (m alpha + n/p beta)        m > 1 segments a chunk; reducing is hidden

The ring waits for a whole chunk, reduces it, and only then sends it on: while it reduces, its link
is idle. Here each chunk travels in m segments, and up to ``WINDOW`` of them are under way: one is
reduced while the next arrive. Receives are announced ahead, so that no sender waits for one. What
has arrived and is not yet reduced takes WINDOW segments of memory, not a chunk. On a CPU this
memory is kept for the next call: new memory comes page by page from the system, thousands of faults
a call.

With one segment a chunk it is the ring, message by message.
"""

import contextlib
from math import ceil

import torch
from torch.distributed import ReduceOp

from lsdl_lib.communication.collectives.calling import all_reduce, chunks

# Small enough for a processor's cache, large enough that starting a message costs little.
SEGMENT_BYTES = 2 * 2**20
WINDOW = 8

_spare = []  # memory of slots that no call uses: at most one, of WINDOW segments


def take_slots(count, like):
    """Return (memory, ``count`` slots of the size and type of ``like`` in it)."""
    n_bytes = like.numel() * like.element_size()
    aligned = max(1, ceil(n_bytes / 64)) * 64
    memory = None
    if like.is_cpu:
        with contextlib.suppress(IndexError):  # a call in another thread has it
            memory = _spare.pop()
    if memory is None or memory.numel() < count * aligned:
        memory = torch.empty(count * aligned, dtype=torch.uint8, device=like.device)
    rows = memory[: count * aligned].view(count, aligned)[:, :n_bytes]
    return memory, [row.view(like.dtype) for row in rows]


def give_back(memory):
    """Keep the memory of slots for the next call."""
    if memory.is_cpu and not _spare:
        _spare.append(memory)


def pipelined_all_reduce(tensor, op=ReduceOp.SUM, group=None, async_op=False):
    """Reduce ``tensor`` over all ranks of ``group``, in place, around a ring, in segments.

    Args:
        tensor: any shape, the same shape and type on every rank.
        op: ``torch.distributed.ReduceOp``.
        group: process group; None is the default group.
        async_op: return a handle to ``wait()`` for instead of waiting.
    """
    return all_reduce(pipelined_steps, tensor, op, group, async_op)


def pipelined_steps(flat, reduce, messages, segment_bytes=SEGMENT_BYTES):
    """The messages and reductions of one rank. ``flat``: (n,), reduced in place."""
    p, rank = messages.size, messages.rank
    left, right = (rank - 1) % p, (rank + 1) % p
    m = segments(p, flat.numel() * flat.element_size(), segment_bytes)
    piece = [torch.tensor_split(chunk, m) for chunk in chunks(flat, p)]  # p x m views
    # The ring's schedule, segment by segment: what is sent and what comes in each message.
    turns = [(step, s) for step in range(p - 1) for s in range(m)]
    outgoing = [piece[(rank - step - 1) % p][s] for step, s in turns]
    outgoing += [piece[(rank - step) % p][s] for step, s in turns]
    coming = [piece[(rank - step - 2) % p][s] for step, s in turns]
    coming += [piece[(rank - step - 1) % p][s] for step, s in turns]
    # In the reduce-scatter half what arrives waits in a slot; in the all-gather half it is final.
    kept, slots = take_slots(min(WINDOW, len(turns)), piece[0][0])
    arriving = [slots[t % WINDOW][: part.numel()] for t, part in enumerate(coming[: len(turns)])]
    arriving += coming[len(turns) :]

    receives = [(buffer, left) for buffer in arriving]

    def start(t):
        return messages.exchange([(outgoing[t], right)], receives[t : t + 1])

    messages.expect(receives[:WINDOW])
    # A segment can be sent once the one m turns before has been reduced.
    ahead = min(m, WINDOW)
    handles = [start(t) for t in range(ahead) if turns]
    for t, part in enumerate(coming):
        yield handles[t]
        if t < len(turns):
            reduce(part, arriving[t])
            # The slot just reduced is free. After the last one, what comes is final, and made of
            # what its places held: nothing there is needed any more.
            free = t + WINDOW + 1 if t + 1 < len(turns) else len(coming)
            messages.expect(receives[t + WINDOW : free])
        if t + ahead < len(coming):
            handles.append(start(t + ahead))
    give_back(kept)


def segments(p, n_bytes, segment_bytes=SEGMENT_BYTES):
    """Return m, the number of segments of a chunk: n/p bytes in segments of at most this size."""
    return max(1, ceil(n_bytes / p / segment_bytes))
