"""Packed numbers come back, and take the bytes that were said."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lsdl_lib.communication.compression.packing import (
    WIDTHS,
    pack,
    pack_signs,
    packed_bytes,
    unpack,
    unpack_signs,
)


@given(data=st.data(), bits=st.sampled_from(WIDTHS))
def test_numbers_come_back(data, bits):
    numbers = data.draw(st.lists(st.integers(0, 2**bits - 1), max_size=70))
    packed = pack(torch.tensor(numbers, dtype=torch.int64), bits)
    assert packed.dtype == torch.uint8
    assert packed.numel() == -(-len(numbers) * bits // 8) == packed_bytes(len(numbers), bits)
    assert unpack(packed, bits, len(numbers)).tolist() == numbers


def test_the_first_number_is_in_the_lowest_bits():
    assert pack(torch.tensor([1, 2, 3, 0, 3]), 2).tolist() == [0b00111001, 0b11]
    assert pack(torch.tensor([True, False, True]), 1).tolist() == [0b101]
    assert pack(torch.tensor([15, 1]), 4).tolist() == [0x1F]


@given(st.lists(st.floats(-2, 2), max_size=40))
def test_signs_come_back_and_zero_is_positive(values):
    vector = torch.tensor(values, dtype=torch.float64)
    signs = unpack_signs(pack_signs(vector), len(values), torch.float64)
    assert signs.tolist() == [1.0 if value >= 0 else -1.0 for value in values]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: pack(torch.tensor([1]), 3), "bits=3: give one of 1, 2, 4, 8"),
        (lambda: unpack(torch.zeros(1, dtype=torch.uint8), 3, 1), "bits=3"),
        (lambda: pack(torch.tensor([0, 4, 3]), 2), "4 does not fit 2 bits: .* from 0 to 3"),
        (lambda: pack(torch.tensor([0, -1]), 8), "-1 does not fit 8 bits"),
        (lambda: unpack(torch.zeros(2, dtype=torch.uint8), 1, 17), "2 bytes for 17 .* take 3"),
    ],
)
def test_wrong_numbers_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()
