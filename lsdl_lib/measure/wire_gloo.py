"""What gloo's collectives send: its algorithms' exact message sizes, as read and as measured.

Found by reading gloo's source and ``ProcessGroupGloo`` of torch 2.13, and held against what the
kernel counted on each rank's own interface (``tests/measure/test_wire.py``). With n bytes, p ranks
and c_r the chunk of rank r (about n/p, cut between elements):

=================  ==========================================  ===============================
collective         algorithm                                   bytes sent by rank r
=================  ==========================================  ===============================
all_reduce         ring in segments of at most 1 MiB           2n - c_r - c_(r-1)
broadcast          binomial tree                               n for each child
reduce             ring reduce-scatter, then direct to root    about n, + c_r if not the root
all_gather         ring; n = one rank's share                  (p-1) n
reduce_scatter     all-reduce of the whole input               as all_reduce
all_to_all         direct                                      n less the own part
gather, scatter    direct, from or to the root                 n, or (p-1) n at the root
barrier            dissemination, empty messages               0, in ceil(log2 p) messages
sparse all_reduce  all-gather of 72 bytes of sizes, then of    (p-1) (n + 72), n = one rank's
                   indices and values                          indices and values
=================  ==========================================  ===============================

So gloo's reduce-scatter moves twice what it must, (p-1)/p n. On top of these bytes come gloo's
headers: 48 bytes a message, and 48 for each of the notices that announce it.
"""

from lsdl_lib.measure.wire import NOTHING, Wire, direct

SEGMENT = 2**20  # gloo's kMaxSegmentSize, bytes
SPARSE_SIZES = 72  # bytes a rank that torch gathers before a sparse all-reduce: 9 integers

FORMULAS = {
    "all_reduce": "ring: 2n - c_r - c_(r-1) sent, 2(p-1)/p n on average",
    "broadcast": "binomial tree: n to each child, n from the parent",
    "reduce": "ring reduce-scatter, then each chunk direct to the root",
    "all_gather": "ring: (p-1) n sent, n = one rank's share",
    "reduce_scatter": "all-reduce of the whole input: 2(p-1)/p n on average",
    "all_to_all": "direct: n less the own part",
    "gather": "direct: n from each rank to the root",
    "scatter": "direct: n from the root to each rank",
    "barrier": "dissemination: ceil(log2 p) empty messages",
    "all_reduce_sparse": "all-gather: (p-1) (n + 72), if all have as many entries as this rank",
    "monitored_barrier": "direct: one word from each rank to rank 0 and back",
}


def _up(number, step):
    return -(-number // step) * step


def _cut(n, first, count, size, segments):
    """Return (bytes, messages) of ``count`` segments from ``first`` on, around the ring."""
    lengths = (min(size, n - k % segments * size) for k in range(first, first + count))
    lengths = [length for length in lengths if length > 0]  # segments past the end are not sent
    return sum(lengths), len(lengths)


def all_reduce(call, n):
    """Return the wire of the ring: a reduce-scatter pass, then an all-gather pass."""
    p, r, e = call.ranks, call.rank, call.element_size
    if n == 0 or p == 1:
        return NOTHING
    largest = e * max(1, SEGMENT // e)
    segments = _up(max(-(-n // largest), 2 * p), p)  # at least two a rank, to overlap
    each = segments // p  # segments a chunk
    size = _up(-(-n // segments), e)
    passed = segments - each  # segments that each pass moves
    out_1, messages_out_1 = _cut(n, (r + 1) * each, passed, size, segments)
    out_2, messages_out_2 = _cut(n, r * each, passed, size, segments)
    in_1, messages_in_1 = _cut(n, (r + 2) * each, passed, size, segments)
    in_2, messages_in_2 = _cut(n, (r + 1) * each, passed, size, segments)
    return Wire(
        out_1 + out_2, in_1 + in_2, messages_out_1 + messages_out_2, messages_in_1 + messages_in_2
    )


def reduce(call, n):
    """Return the wire of the ring reduce-scatter and the chunks' way to the root.

    The ring runs all but two segments around, which is p - 1 chunks while a chunk is two segments,
    and nearly p chunks (more than needed) once n / p is above 2 MiB.
    """
    p, r, e = call.ranks, call.rank, call.element_size
    if n == 0 or p == 1:
        return NOTHING
    size = _up(min(-(-n // (2 * p)), e * (SEGMENT // e)), e)
    segments = _up(max(-(-n // size), 2 * p), p)
    each = segments // p
    ring_out = _cut(n, (r + 1) * each, segments - 2, size, segments)
    ring_in = _cut(n, (r + 2) * each, segments - 2, size, segments)
    chunks = [_cut(n, k * each, each, size, segments)[0] for k in range(p)]
    to_root = [chunk for k, chunk in enumerate(chunks) if k != call.root and chunk]
    wire = Wire(ring_out[0], ring_in[0], ring_out[1], ring_in[1])
    if r == call.root:
        return wire + Wire(0, sum(to_root), 0, len(to_root))
    return wire + Wire(chunks[r], 0, int(chunks[r] > 0), 0)


def broadcast(call, n):
    """Return the wire of the binomial tree; ranks are counted from the root."""
    p = call.ranks
    place = (call.rank - call.root) % p
    steps = range(max(p - 1, 0).bit_length())
    children = sum(1 for i in steps if place < 2**i and place + 2**i < p)
    has_parent = int(place > 0)
    return Wire(children * n, has_parent * n, children, has_parent)


def all_gather(call, n):
    """Return the wire of the ring; each share travels in two halves."""
    others = call.ranks - 1
    if n == 0 or others == 0:
        return NOTHING
    return Wire(others * n, others * n, 2 * others, 2 * others)


def all_reduce_sparse(call, n):
    """Return the wire of three all-gathers: sizes, indices, values; n = this rank's last two."""
    others = call.ranks - 1
    return all_gather(call, SPARSE_SIZES) + Wire(others * n, others * n, 2 * others, 2 * others)


def barrier(call):
    """Return the wire of the dissemination barrier: empty messages at distances 1, 2, 4, ..."""
    steps = max(call.ranks - 1, 0).bit_length()
    return Wire(0, 0, steps, steps)


def monitored_barrier(call):
    """Return the wire of the monitored barrier: a 4-byte word to rank 0 and one back."""
    peers = call.ranks - 1 if call.rank == 0 else 1
    return Wire(4 * peers, 4 * peers, peers, peers)


def wire(kind, call):
    """Return the :class:`Wire` of ``call`` on gloo.

    Args:
        kind: a key of ``FORMULAS``.
        call: a :class:`~lsdl_lib.measure.wire.Call`.
    """
    if kind in ("all_to_all", "gather", "scatter"):
        return direct(kind, call)
    if kind == "barrier":
        return barrier(call)
    if kind == "monitored_barrier":
        return monitored_barrier(call)
    if kind == "reduce_scatter":  # several tensors go one after the other, an all-reduce each
        return sum((all_reduce(call, n) for n in call.parts), NOTHING)
    one = {  # several tensors are laid end to end first
        "all_reduce": all_reduce,
        "all_reduce_sparse": all_reduce_sparse,
        "broadcast": broadcast,
        "reduce": reduce,
        "all_gather": all_gather,
    }[kind]
    return one(call, call.size)
