"""Numbers of few bits, side by side in bytes: what travels is as small as the papers say.

    n numbers of b bits take ceil(n / (8 / b)) bytes,  b = 1, 2, 4, 8

The first number is in the lowest bits of the first byte. torch has no type below 8 bits that its
collectives carry, so a sign that was sent as a float, or even as a bool, would save little or
nothing.

A step packs every tensor and unpacks p messages, so neither may cost an operation for each place in
a byte. Packing reads the numbers of a byte as one word and gathers them with one multiplication;
unpacking looks up the word that a byte stands for. Both take words to have their lowest byte first,
as all processors that torch runs on have.
"""

import functools

import torch

WIDTHS = (1, 2, 4, 8)
WORDS = {1: torch.int64, 2: torch.int32, 4: torch.int16}  # as many bytes as a byte has numbers


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
    bools = numbers.dtype == torch.bool  # they fit any width: nothing to read back from a device
    if numbers.numel() and not bools and not 0 <= (worst := _farthest(numbers)) < 2**bits:
        raise ValueError(f"{worst} does not fit {bits} bits: give numbers from 0 to {2**bits - 1}")
    padded = torch.zeros(
        packed_bytes(numbers.numel(), bits) * (8 // bits), dtype=torch.uint8, device=numbers.device
    )
    padded[: numbers.numel()] = numbers
    if bits == 8:
        return padded
    # Number i lies at bit 8 i of the word. The i-th term moves it to bits * i of the word's highest
    # byte. What else the terms make lies in bits of its own, or above the word: nothing carries.
    highest = 8 * (8 // bits) - 8
    gather = sum(1 << (highest - (8 - bits) * place) for place in range(8 // bits))
    return ((padded.view(WORDS[bits]) * gather) >> highest).to(torch.uint8)


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
    if bits == 8:
        return packed.clone()
    return _words(bits, packed.device).index_select(0, packed.int()).view(torch.uint8)[:n]


@functools.cache
def _words(bits, device):
    """Return for each byte the word of its numbers, (256,)."""
    places = torch.arange(0, 8, bits, dtype=torch.uint8)
    numbers = (torch.arange(256, dtype=torch.uint8)[:, None] >> places) & (2**bits - 1)
    return numbers.view(WORDS[bits]).flatten().to(device)


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
