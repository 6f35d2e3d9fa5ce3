"""Error feedback keeps its error through steps that are not finite."""

import pytest
import torch

from lsdl_lib.communication.compression import Alone, ErrorFeedback, TopK
from tests.communication.compression import laws


@pytest.mark.parametrize("dtype", laws.FLOATS)
@pytest.mark.parametrize("value", laws.NOT_FINITE)
def test_a_step_that_is_not_finite_leaves_the_error_as_it_was(value, dtype):
    compressor, vector = ErrorFeedback(TopK(0.3)), laws.gradients([(20,)], dtype, rank=0)
    compressor.aggregate(vector, Alone())
    before = compressor.errors[0].clone()
    assert before.any()
    for place in (0, 9, 19):
        broken = vector.clone()
        broken[place] = value
        mean, _ = compressor.aggregate(broken, Alone())
        assert not torch.isfinite(mean).all()
        assert torch.equal(compressor.errors[0], before)


def test_a_vector_without_numbers_is_averaged():
    mean, residual = ErrorFeedback(TopK(0.3)).aggregate(torch.zeros(0), Alone())
    assert mean.shape == residual.shape == (0,)
