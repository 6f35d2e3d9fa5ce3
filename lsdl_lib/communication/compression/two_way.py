"""Signs both ways: an all-reduce of 1 bit a number, with error feedback on both of its halves.

    rank r       says  C[x_r + e_r],               e_r = what that lost
    part k       is averaged by rank k, with the error d_k of its earlier answers
    rank k       answers  C[mean over r of what they said + d_k],     d_k = what that lost

    C[x] = (mean of |x|) sign(x)      one scale for each tensor's piece within a part

A rank that gathers all signs receives (p-1) n/8 bytes. Here it sends (p-1)/p n/8 to those who
average and as much to all: like a ring all-reduce, but of bits. The average of signs is no sign,
so it is compressed again; that is why the averaging rank has an error of its own (Tang et al.
2021, algorithm 1; they call the ranks in that role the server).

Conserved, summed over steps: p mean + the ranks' errors e + p (the errors d, each at its part's
place) = sum of the vectors.
"""

from itertools import accumulate
from math import prod

import torch

from lsdl_lib.communication.compression.compressor import Compressor
from lsdl_lib.communication.compression.packing import pack_signs, packed_bytes, unpack_signs

SCALE_BYTES = 4  # float32


class TwoWaySign(Compressor):
    """Average with 1 bit a number each way. It has its own error feedback: do not add another.

    A step whose mean is not finite changes no error: the training loop skips it.
    """

    by_tensor = True
    has_residual = False  # it is in the memory, and would be added twice

    def __init__(self):
        self.errors = {}  # key -> (e, (n,); d, (numbers in this rank's part,))

    def aggregate(self, vector, peers, key=0, shapes=None):
        """Average the vectors, with the errors of earlier calls with this key.

        Returns:
            (mean, e): e is what was lost of this rank's vector, which the next call adds. What the
            answer lost is not in it.
        """
        sizes = [vector.numel()] if shapes is None else [prod(shape) for shape in shapes]
        parts = divide(sizes, peers.size)
        mine = parts[peers.rank]
        before = self._errors(key, vector, sum(mine))
        corrected = vector + before[0]
        said = [
            encode(piece, part)
            for piece, part in zip(corrected.split([sum(part) for part in parts]), parts)
        ]
        own = torch.cat([decode(*both, vector.dtype) for both in zip(said, parts)])
        average = before[1].clone()
        for message in peers.exchange(said):
            average.add_(decode(message, mine, vector.dtype), alpha=1 / peers.size)
        answer = encode(average, mine)
        after = (corrected - own, average - decode(answer, mine, vector.dtype))
        lengths = [message_length(part) for part in parts]
        padded = answer.new_zeros(max(lengths))  # the parts may differ, messages may not
        padded[: answer.numel()] = answer
        mean = torch.cat(
            [
                decode(row[:length], part, vector.dtype)
                for (row,), length, part in zip(peers.gather((padded,)), lengths, parts)
            ]
        )
        # The mean is the same on all ranks, so all decide alike.
        if not torch.isfinite(mean).all():
            return mean, before[0]
        self.errors[key] = after
        return mean, after[0]

    def _errors(self, key, vector, n):
        errors = self.errors.get(key)
        if errors and errors[0].shape == vector.shape and errors[0].dtype == vector.dtype:
            return errors
        return torch.zeros_like(vector), vector.new_zeros(n)

    def forget(self, key):
        """Start with errors of 0 again."""
        self.errors.pop(key, None)

    def state_dict(self):
        """Return the errors. They are this rank's: every rank saves its own."""
        return {"errors": dict(self.errors)}

    def load_state_dict(self, state):
        """Go on from a saved state, with as many ranks."""
        self.errors = {key: (e.clone(), d.clone()) for key, (e, d) in state["errors"].items()}


def divide(sizes, p):
    """Cut tensors that lie one behind the other into p parts of nearly equal, whole bytes of signs.

    Args:
        sizes: numbers in each tensor.
        p: parts.

    Returns:
        p lists of the sizes of the tensors' pieces in a part. Each piece has a scale of its own.
    """
    n = sum(sizes)
    width = 8 * -(-n // (8 * p))
    ends = {*accumulate(sizes), *(min(n, width * part) for part in range(1, p + 1))} - {0}
    parts, start = [[] for _ in range(p)], 0
    for end in sorted(ends):
        parts[start // width].append(end - start)
        start = end
    return parts


def encode(vector, sizes):
    """Return the message of pieces of the given sizes, uint8: their scales, then their signs."""
    # Half precision would lose the sum of the sizes.
    kind = torch.promote_types(vector.dtype, torch.float32)
    scales = vector.new_zeros(len(sizes), dtype=torch.float32)
    for place, piece in enumerate(vector.split(sizes) if sizes else ()):
        scales[place] = piece.abs().mean(dtype=kind)
    return torch.cat([scales.view(torch.uint8), pack_signs(vector)])


def decode(message, sizes, dtype):
    """Return what a message says, (sum of the sizes,)."""
    at = SCALE_BYTES * len(sizes)
    scales = message[:at].clone().view(torch.float32).to(dtype)
    repeats = torch.tensor(sizes, dtype=torch.int64, device=message.device)
    return scales.repeat_interleave(repeats) * unpack_signs(message[at:], sum(sizes), dtype)


def message_length(sizes):
    """Return the bytes of the message of a part with these pieces."""
    return SCALE_BYTES * len(sizes) + packed_bytes(sum(sizes), 1)
