"""A model as a sequence of blocks, and cuts between them.

Every block takes one tensor and returns one, so that the model is a composition::

    f = f_{n-1} o ... o f_1 o f_0
    cut before i:  f = (f_{n-1} o ... o f_i) o (f_{i-1} o ... o f_0)

and may be cut before any block but the first: a pipeline puts the stages on different ranks, local
learning gives each one a loss of its own. Stages share the model's modules, they copy nothing, and
keep the names of their parameters: the state dicts of the stages make up that of the model.

Tied parameters. A parameter that two blocks use (a GPT's tied embedding) may end up in two stages.
In one process both hold the same object, and its gradient sums both uses, as in the uncut model. In
different processes each has a copy, whose gradient is that of its own use: sum them (an all-reduce
between the owners) before the optimizer steps. ``shared_parameters`` tells you which they are.
"""

from itertools import pairwise

from torch import nn


class BlockSequence(nn.Module):
    """Blocks run one after another; ``blocks[i]`` is the i-th, ``len`` their number.

    Moves and casts keep the ties. So does ``to_empty``, which gives every module new parameters.

    Args:
        blocks: an iterable of modules, or an ``nn.Sequential`` whose names are kept.
        ties: groups of parameter names; all of a group become the parameter of the first name.
    """

    def __init__(self, blocks, ties=()):
        super().__init__()
        self.blocks = blocks if isinstance(blocks, nn.Sequential) else nn.Sequential(*blocks)
        self.ties = tuple(ties)
        self._tie()

    def forward(self, x):
        """Return the last block's output; shapes as the first and the last block have them."""
        return self.blocks(x)

    def __len__(self):
        return len(self.blocks)

    def _tie(self):
        for first, *others in self.ties:
            for name in others:
                owner, _, leaf = name.rpartition(".")
                setattr(self.get_submodule(owner), leaf, self.get_parameter(first))

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        self._tie()
        return self


def cut(model, before):
    """Cut a model into consecutive stages that share its modules.

    Args:
        model: a ``BlockSequence`` of n blocks.
        before: rising numbers of the blocks that start a new stage, each from 1 to n - 1.
            ``[2, 5]`` gives blocks 0-1, 2-4 and 5 to the end; ``[]`` a single stage.

    Returns:
        list of ``BlockSequence``; running them in order is running the model. Block names are those
        of the model: ``stages[1]`` above has ``blocks.2``, ``blocks.3``, ``blocks.4``.

    Raises:
        ValueError: a number is out of range, or the numbers do not rise.
    """
    edges = [0, *before, len(model)]
    if any(right <= left for left, right in pairwise(edges)):
        raise ValueError(
            f"cut before {list(before)}: each number must be above the one before it and from 1 to "
            f"{len(model) - 1}, for a model of {len(model)} blocks"
        )
    stages = []
    for left, right in pairwise(edges):
        blocks = model.blocks[left:right]  # a slice of nn.Sequential keeps the names
        owners = tuple(f"blocks.{name}." for name in blocks._modules)
        inside = [[name for name in tie if name.startswith(owners)] for tie in model.ties]
        stage = BlockSequence(blocks, ties=[names for names in inside if len(names) > 1])
        stage.training = blocks.training = model.training
        stages.append(stage)
    return stages


def shared_parameters(stages):
    """Find the parameters that more than one stage uses.

    Returns:
        list with one entry a shared parameter: the list of its (stage number, name in that stage).
        Empty when no tie crosses a cut.
    """
    places = {}
    for number, stage in enumerate(stages):
        for name, parameter in stage.named_parameters():
            places.setdefault(id(parameter), []).append((number, name))
    return [uses for uses in places.values() if len(uses) > 1]
