"""All-gather: every rank's tensor comes to every rank.

    ring:     (p-1) alpha + (p-1)/p n beta           any p, any sizes; n is all pieces together
    doubling: lg p alpha + (p-1)/p n beta            p a power of two

In recursive doubling, partners at distance 1, 2, 4, … swap all that they have so far.
"""

from lsdl_lib.communication.collectives import halving, ring
from lsdl_lib.communication.collectives.calling import drive, perform, size_of
from lsdl_lib.communication.collectives.checking import agree
from lsdl_lib.communication.collectives.doubling import largest_power_of_two
from lsdl_lib.communication.collectives.lists import Pieces, refuse_misfit
from lsdl_lib.communication.collectives.messages import Messages


def ring_all_gather(tensor_list, tensor, group=None, async_op=False):
    """Bring every rank's ``tensor`` to all ranks of ``group``, around a ring.

    Args:
        tensor_list: one tensor a rank, written: the shapes of the ranks' tensors.
        tensor: this rank's tensor.
        group: process group; None is the default group.
        async_op: return a handle to ``wait()`` for instead of waiting.

    Raises:
        ValueError: the list has not one tensor a rank, or this rank's place has another size.
    """

    def steps(pieces, messages):
        return ring.all_gather_steps(pieces.views, messages)

    return _all_gather("ring_all_gather", steps, tensor_list, tensor, group, async_op)


def doubling_all_gather(tensor_list, tensor, group=None, async_op=False):
    """As :func:`ring_all_gather`, by recursive doubling.

    Raises:
        ValueError: also when the number of ranks is no power of two.
    """
    refuse_odd_sizes(size_of(group))

    def steps(pieces, messages):
        return halving.all_gather_steps(pieces.flat, pieces.edges, messages)

    return _all_gather("doubling_all_gather", steps, tensor_list, tensor, group, async_op)


def _all_gather(name, steps, tensor_list, tensor, group, async_op):
    agree(name, group, gives=tensor, takes=tensor_list)
    messages = Messages(group)
    pieces = Pieces(tensor_list, messages.size, "tensor_list", filled=False)
    mine = pieces.views[messages.rank]
    refuse_misfit(f"place {messages.rank} of tensor_list", mine, "this rank's tensor", tensor)

    def run():
        mine.copy_(tensor.detach().reshape(-1))
        drive(steps(pieces, messages), messages)
        pieces.write_back()

    return perform(run, async_op)


def refuse_odd_sizes(p):
    """Raise ValueError when p is no power of two."""
    if p != largest_power_of_two(p):
        raise ValueError(f"{p} ranks are no power of two: use the ring")
