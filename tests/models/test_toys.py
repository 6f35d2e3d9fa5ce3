import pytest
import torch
from torch.nn import functional as F

from lsdl_lib.models import TOYS, Toy, cut, toy_batch


def backward(model, samples=12):
    x, y = toy_batch(samples, dtype=torch.float64)
    F.cross_entropy(model(x), y).backward()


@pytest.mark.parametrize("name", TOYS)
def test_exactly_the_named_parameters_get_no_gradient(name):
    toy = Toy(name, dtype=torch.float64)
    backward(toy)
    without = {path for path, parameter in toy.named_parameters() if parameter.grad is None}
    assert without == toy.no_gradient
    for path, parameter in toy.named_parameters():
        if path not in without and parameter.numel():
            assert parameter.grad.abs().max() > 0


@pytest.mark.parametrize("name", TOYS)
def test_gradients_are_right(name):
    toy = Toy(name, dtype=torch.float64)
    x, _ = toy_batch(3, dtype=torch.float64)
    trained = [p for path, p in toy.named_parameters() if path not in toy.no_gradient and p.numel()]
    assert torch.autograd.gradcheck(lambda *_: toy(x), trained)


DIFFICULTIES = {
    "tied": lambda toy: len(toy.ties) == 1,
    "frozen": lambda toy: sum(not p.requires_grad for p in toy.parameters()) == 3,
    "unused": lambda toy: any(toy.get_parameter(n).requires_grad for n in toy.no_gradient),
    "scalar": lambda toy: any(p.shape == () for p in toy.parameters()),
    "empty": lambda toy: any(p.shape == (0,) for p in toy.parameters()),
}


@pytest.mark.parametrize("name", TOYS)
def test_each_toy_has_its_difficulty_and_the_last_has_all(name):
    toy = Toy(name)
    expected = set(DIFFICULTIES) if name == "everything" else {name} & set(DIFFICULTIES)
    assert {key for key, holds in DIFFICULTIES.items() if holds(toy)} == expected


def test_frozen_toy_still_trains_on_both_sides_of_a_frozen_bias():
    toy = Toy("frozen")
    assert toy.get_parameter("blocks.2.linear.weight").requires_grad
    assert toy.get_parameter("blocks.1.linear.bias").requires_grad


def test_tied_gradient_is_the_sum_of_both_uses():
    toy = Toy("tied", dtype=torch.float64)
    backward(toy)
    uses = Toy("tied", dtype=torch.float64)
    weight = uses.blocks[1].linear.weight
    uses.blocks[2].linear.weight = torch.nn.Parameter(weight.detach().clone())
    backward(uses)
    both = uses.blocks[1].linear.weight.grad + uses.blocks[2].linear.weight.grad
    assert torch.allclose(toy.blocks[1].linear.weight.grad, both, rtol=0, atol=1e-14)
    assert sum(p is toy.blocks[1].linear.weight for p in toy.parameters()) == 1


def test_empty_parameter_gets_an_empty_gradient():
    toy = Toy("empty", dtype=torch.float64)
    backward(toy)
    (empty,) = (p for p in toy.parameters() if p.shape == (0,))
    assert empty.grad.shape == (0,)


def test_unused_blocks_change_nothing():
    x, _ = toy_batch(4)
    assert torch.equal(Toy("unused").blocks[3](x), x)


def test_scalar_scales():
    toy = Toy("scalar", dtype=torch.float64)
    before, block, after = cut(toy, [3, 4])
    x, _ = toy_batch(4, dtype=torch.float64)
    assert torch.equal(toy(x), after(1.5 * before(x)))
    assert block.blocks[0].scale.shape == ()


def test_batch_values_are_distinct_and_seeded():
    x, y = toy_batch(50, seed=2)
    assert x.shape == (50, 4)
    assert x.flatten().unique().numel() == 200
    assert y.tolist() == [place % 3 for place in range(50)]
    assert torch.equal(x, toy_batch(50, seed=2)[0])
    assert not torch.equal(x, toy_batch(50, seed=3)[0])


def test_unknown_toy():
    with pytest.raises(ValueError, match="no toy 'bear'; choose one of plain, tied"):
        Toy("bear")
