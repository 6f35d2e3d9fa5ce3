"""All-to-all: piece r of this rank's list goes to rank r, for all ranks at once.

    direct, pairwise: (p-1) alpha + (p-1)/p n beta      n is a rank's whole list

*Direct* starts all messages at once; *pairwise* takes p-1 steps, in step k between ranks k apart,
so that no rank receives from two at a time. As many bytes; pairwise is kinder to a shared network.
"""

from lsdl_lib.communication.collectives.calling import drive, perform
from lsdl_lib.communication.collectives.checking import agree
from lsdl_lib.communication.collectives.lists import Pieces, refuse_misfit
from lsdl_lib.communication.collectives.messages import Messages


def direct_all_to_all(output_list, input_list, group=None, async_op=False):
    """As :func:`pairwise_all_to_all`, with all messages in flight at once."""
    return _all_to_all("direct_all_to_all", direct_steps, output_list, input_list, group, async_op)


def pairwise_all_to_all(output_list, input_list, group=None, async_op=False):
    """Send ``input_list[r]`` to rank r and receive its piece for us in ``output_list[r]``.

    Args:
        output_list: one tensor a rank, written.
        input_list: one tensor a rank.
        group: process group; None is the default group.
        async_op: return a handle to ``wait()`` for instead of waiting.

    Raises:
        ValueError: a list has not one tensor a rank.
    """
    return _all_to_all(
        "pairwise_all_to_all", pairwise_steps, output_list, input_list, group, async_op
    )


def _all_to_all(name, steps, output_list, input_list, group, async_op):
    agree(name, group, gives=input_list, takes=output_list)
    messages = Messages(group)
    outgoing = Pieces(input_list, messages.size, "input_list", filled=True)
    incoming = Pieces(output_list, messages.size, "output_list", filled=False)
    ours, kept = outgoing.views[messages.rank], incoming.views[messages.rank]
    refuse_misfit(f"place {messages.rank} of input_list", ours, "that of output_list", kept)

    def run():
        kept.copy_(ours)
        drive(steps(outgoing.views, incoming.views, messages), messages)
        incoming.write_back()

    return perform(run, async_op)


def direct_steps(outgoing, incoming, messages):
    """The messages of one rank, all in one step."""
    others = [rank for rank in range(messages.size) if rank != messages.rank]
    yield messages.exchange(
        sends=[(outgoing[rank], rank) for rank in others],
        receives=[(incoming[rank], rank) for rank in others],
    )


def pairwise_steps(outgoing, incoming, messages):
    """The messages of one rank, p-1 steps."""
    p, rank = messages.size, messages.rank
    for distance in range(1, p):
        to, source = (rank + distance) % p, (rank - distance) % p
        yield messages.exchange(sends=[(outgoing[to], to)], receives=[(incoming[source], source)])
