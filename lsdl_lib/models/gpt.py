"""A GPT-style transformer: pre-norm decoder blocks over learned positions, as in GPT-2.

    h_0 = E[tokens] + P[0..T)
    a = h + W_o attention(W_qkv norm(h)),   h' = a + W_2 gelu(W_1 norm(a))       L times
    logits = norm(h_L) E^T                 (tied; with W^T of its own when not)

Blocks: the embedding, each transformer block, the head. No dropout, so that runs can be compared
number by number.

With V tokens, T positions, L blocks and width C:
parameters V C + T C + L (12 C^2 + 13 C) + 2 C, and V C more when not tied;
forward FLOPs of B sequences of t tokens: L (24 B t C^2 + 4 B t^2 C) + 2 B t C V.

Sources: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019 (the smallest
GPT-2 has 124,439,808 parameters); Press and Wolf 2017, arXiv:1608.05859, for the tie.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from .blocks import BlockSequence
from .counting import Flops, block_flops, block_parameters
from .initialize import Constant, Normal, initialize, uninitialized
from .layers import check_choice, check_positive


@dataclass(frozen=True)
class GPTConfig:
    """Sizes of a GPT.

    Attributes:
        vocabulary: V, number of tokens.
        context: T, the longest sequence.
        layers: L, number of transformer blocks.
        width: C, channels.
        heads: of attention; each has C / heads channels.
        tied: whether the head uses the token embedding as its weight.

    Raises:
        ValueError: names the field and the value that does not fit.
    """

    vocabulary: int = 128
    context: int = 64
    layers: int = 4
    width: int = 64
    heads: int = 4
    tied: bool = True

    def __post_init__(self):
        check_positive(self, "vocabulary", "context", "layers", "width", "heads")
        check_choice(self, "tied", (True, False))
        if self.width % self.heads:
            raise ValueError(
                f"GPTConfig.heads is {self.heads}, which does not divide the width {self.width}"
            )


class Embedding(nn.Module):
    """Tokens (B, T), int64 -> (B, T, C)."""

    def __init__(self, config):
        super().__init__()
        self.token = nn.Embedding(config.vocabulary, config.width)
        self.position = nn.Embedding(config.context, config.width)

    def forward(self, tokens):
        """Return the embedded tokens.

        Raises:
            ValueError: the sequence is longer than the context.
        """
        length, context = tokens.shape[1], self.position.num_embeddings
        if length > context:
            raise ValueError(f"a sequence of {length} tokens is longer than the context, {context}")
        return self.token(tokens) + self.position.weight[:length]  # (B, T, C)


class Attention(nn.Module):
    """Causal self-attention: (B, T, C) -> (B, T, C)."""

    def __init__(self, config):
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.project = nn.Linear(config.width, config.width)

    def forward(self, x):
        """Return the attended values; position t sees positions 0..t only."""
        qkv = self.qkv(x).unflatten(2, (3, self.heads, -1))  # (B, T, 3, heads, C / heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)  # (B, heads, T, C / heads) each
        y = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.project(y.transpose(1, 2).flatten(2))  # (B, T, C)


class Block(nn.Module):
    """One transformer block: (B, T, C) -> (B, T, C)."""

    def __init__(self, config):
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width)
        self.attention = Attention(config)
        self.norm2 = nn.LayerNorm(config.width)
        self.expand = nn.Linear(config.width, 4 * config.width)
        self.project = nn.Linear(4 * config.width, config.width)

    def forward(self, x):
        """Return the block's output, the shape of its input."""
        x = x + self.attention(self.norm1(x))
        hidden = F.gelu(self.expand(self.norm2(x)), approximate="tanh")  # (B, T, 4C)
        return x + self.project(hidden)


class Head(nn.Module):
    """(B, T, C) -> logits (B, T, V), without bias."""

    def __init__(self, config):
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.weight = nn.Parameter(torch.empty(config.vocabulary, config.width))

    def forward(self, x):
        """Return the logits of the next token at each position."""
        return F.linear(self.norm(x), self.weight)


class GPT(BlockSequence):
    """The network of ``config``: tokens (B, T) -> logits (B, T, V); T up to ``config.context``.

    A tied head's weight is the embedding's parameter itself. For a cut between them see ``cut``.

    Args:
        config: ``GPTConfig``.
        seed: of the initial values: Normal(0.02), residual projections Normal(0.02 / sqrt(2 L)).
        device: of the parameters.
        dtype: of the parameters.
    """

    def __init__(self, config, *, seed=0, device=None, dtype=None):
        with uninitialized(device):
            middle = [Block(config) for _ in range(config.layers)]
            tie = ("blocks.0.token.weight", f"blocks.{config.layers + 1}.weight")
            blocks = [Embedding(config), *middle, Head(config)]
            super().__init__(blocks, ties=[tie] if config.tied else [])
        self.config = config
        initialize(self, self._rule, seed=seed, dtype=dtype)

    def _rule(self, module, name, parameter):
        if isinstance(module, nn.LayerNorm):
            return Constant(1.0 if name == "weight" else 0.0)
        if name == "bias":
            return Constant(0.0)
        writes_residual = isinstance(module, nn.Linear) and module.out_features == self.config.width
        return Normal(0.02 / (2 * self.config.layers) ** 0.5 if writes_residual else 0.02)


@block_parameters.register
def _(config: GPTConfig):
    width, table = config.width, config.vocabulary * config.width
    block = 12 * width**2 + 13 * width
    head = 2 * width + (0 if config.tied else table)
    return [table + config.context * width, *[block] * config.layers, head]


@block_flops.register
def _(config: GPTConfig, input_shape) -> list[Flops]:
    batch, length = input_shape
    if not 1 <= length <= config.context:
        raise ValueError(f"{length} tokens do not fit the context, 1 to {config.context}")
    linear = 24 * batch * length * config.width**2  # qkv 6, projection 2, expand 8, project 8
    attention = 4 * batch * length**2 * config.width  # scores 2, weighted sum 2
    head = 2 * batch * length * config.width * config.vocabulary
    block = linear + attention
    # The embedding's gradient needs every layer's input gradient: backward is twice forward.
    return [Flops(0, 0), *[Flops(block, 2 * block)] * config.layers, Flops(head, 2 * head)]
