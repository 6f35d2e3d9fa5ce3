"""One step: what sticks out, and the batch from which on nothing does."""

import pytest

from lsdl_lib.foundations import Step, hiding_examples
from lsdl_lib.models import Flops, GPTConfig, flop_count, parameter_count


@pytest.mark.parametrize(
    ("forward", "backward", "communication", "exposed", "seconds"),
    [
        (1.0, 2.0, 0.0, 0.0, 3.0),  # one rank
        (1.0, 2.0, 1.5, 0.0, 3.0),  # hidden
        (1.0, 2.0, 2.0, 0.0, 3.0),  # just hidden
        (1.0, 2.0, 5.0, 3.0, 6.0),
        (0.0, 0.0, 5.0, 5.0, 5.0),  # nothing to hide behind
    ],
)
def test_a_step_by_hand(forward, backward, communication, exposed, seconds):
    step = Step(forward, backward, communication)
    assert step.exposed == exposed
    assert step.seconds == seconds
    assert step.exposed_share == exposed / seconds


def test_a_step_from_counts():
    assert Step.of(Flops(100, 300), 50.0, 4.0) == Step(2.0, 6.0, 4.0)


@pytest.mark.parametrize("flops", [3, 10, 7e9])
@pytest.mark.parametrize("peak", [1.0, 1e12])
@pytest.mark.parametrize("communication", [1e-6, 0.37, 12.0])
def test_at_the_hiding_batch_all_is_hidden_and_one_example_below_not(flops, peak, communication):
    examples = hiding_examples(flops, peak, communication)
    assert Step(0, flops * examples / peak, communication).exposed <= 1e-12 * communication
    if examples > 1:
        assert Step(0, flops * (examples - 1) / peak, communication).exposed > 0


def test_without_communication_one_example_is_enough():
    assert hiding_examples(10, 1e9, 0.0) == 1


@pytest.mark.parametrize("layers", [2, 12, 24])
def test_the_number_of_tokens_hardly_depends_on_the_size_of_the_network(layers):
    """b* is about 2 beta P tokens with 4-byte gradients, for many ranks and no latency."""
    config = GPTConfig(vocabulary=64, context=256, layers=layers, width=1024, heads=8)
    beta, peak, tokens = 8e-11, 1e15, 256
    seconds = 2 * 4 * parameter_count(config) * beta  # a ring on many ranks
    backward = flop_count(config, (1, tokens)).backward
    examples = hiding_examples(backward, peak, seconds)
    assert tokens * examples == pytest.approx(2 * beta * peak, rel=0.1)


@pytest.mark.parametrize("name", ["forward", "backward", "communication"])
def test_a_negative_time_is_named(name):
    times = {"forward": 1.0, "backward": 1.0, "communication": 1.0, name: -0.5}
    with pytest.raises(ValueError, match=f"{name}=-0.5"):
        Step(**times)


def test_values_that_make_no_sense_are_named():
    with pytest.raises(ValueError, match="backward_flops=0"):
        hiding_examples(0, 1.0, 1.0)
    with pytest.raises(ValueError, match="peak_flop_s=-1"):
        hiding_examples(1, -1, 1.0)
    with pytest.raises(ValueError, match="communication=-2"):
        hiding_examples(1, 1, -2)
