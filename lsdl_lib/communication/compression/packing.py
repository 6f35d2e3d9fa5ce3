"""Numbers of few bits, side by side in bytes: what travels is as small as the papers say.

    n numbers of b bits take ceil(n / (8 / b)) bytes,  b = 1, 2, 4, 8

The first number is in the lowest bits of the first byte. torch has no type below 8 bits that its
collectives carry, so a sign that was sent as a float, or even as a bool, would save little or
nothing.
"""

import torch

WIDTHS = (1, 2, 4, 8)


def pack(numbers, bits):
    """Return the numbers as bytes.

    Args:
        numbers: (n,) integers or bools, each at least 0 and below 2**bits.
        bits: 1, 2, 4 or 8.

    Returns:
        (packed_bytes(n, bits),) uint8.

    Raises:
        ValueError: another width, or a number that does not fit: it is named.
    """
    _check_width(bits)
    if numbers.numel() and not 0 <= (worst := _farthest(numbers)) < 2**bits:
        raise ValueError(f"{worst} does not fit {bits} bits: give numbers from 0 to {2**bits - 1}")
    per_byte = 8 // bits
    padded = torch.zeros(
        packed_bytes(numbers.numel(), bits) * per_byte, dtype=torch.uint8, device=numbers.device
    )
    padded[: numbers.numel()] = numbers
    columns = padded.view(-1, per_byte)  # (bytes, numbers a byte)
    packed = columns[:, 0].clone()
    for place in range(1, per_byte):
        packed |= columns[:, place] << (bits * place)
    return packed


def unpack(packed, bits, n):
    """Return the n numbers that :func:`pack` packed, (n,) uint8.

    Raises:
        ValueError: another width, or another number of bytes than n numbers take.
    """
    _check_width(bits)
    if packed.numel() != packed_bytes(n, bits):
        raise ValueError(
            f"{packed.numel()} bytes for {n} numbers of {bits} bits: "
            f"they take {packed_bytes(n, bits)}"
        )
    per_byte = 8 // bits
    columns = torch.empty(packed.numel(), per_byte, dtype=torch.uint8, device=packed.device)
    for place in range(per_byte):
        columns[:, place] = (packed >> (bits * place)) & (2**bits - 1)
    return columns.view(-1)[:n]


def packed_bytes(n, bits):
    """Return the bytes that n numbers of ``bits`` bits take."""
    return -(-n * bits // 8)


def pack_signs(vector):
    """Return one bit an element: 1 where it is at least 0. (n,) -> (ceil(n / 8),) uint8."""
    return pack(vector >= 0, 1)


def unpack_signs(packed, n, dtype=torch.float32):
    """Return n signs as +1 and -1, (n,)."""
    return unpack(packed, 1, n).to(dtype).mul_(2).sub_(1)


def _check_width(bits):
    if bits not in WIDTHS:
        raise ValueError(f"bits={bits!r}: give one of {', '.join(map(str, WIDTHS))}")


def _farthest(numbers):
    low, high = int(numbers.min()), int(numbers.max())
    return low if low < 0 else high
