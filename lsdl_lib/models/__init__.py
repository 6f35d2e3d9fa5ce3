"""Models as sequences of blocks that can be cut anywhere, with exact parameter and FLOP counts."""

from .blocks import BlockSequence, cut, shared_parameters
from .convnet import ConvNet, ConvNetConfig
from .counting import (
    Flops,
    block_flops,
    block_parameters,
    counted_flops,
    flop_count,
    parameter_count,
)
from .gpt import GPT, GPTConfig
from .mlp import MLP, MLPConfig
from .resnet import ResNet, ResNetConfig
from .toy import TOYS, Toy, toy_batch

__all__ = [
    "GPT",
    "MLP",
    "TOYS",
    "BlockSequence",
    "ConvNet",
    "ConvNetConfig",
    "Flops",
    "GPTConfig",
    "MLPConfig",
    "ResNet",
    "ResNetConfig",
    "Toy",
    "block_flops",
    "block_parameters",
    "counted_flops",
    "cut",
    "flop_count",
    "parameter_count",
    "shared_parameters",
    "toy_batch",
]
