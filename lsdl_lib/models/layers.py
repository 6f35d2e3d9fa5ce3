"""What the convolutional nets and the MLP share: norms that can be chosen, and config checks.

``batch`` norm averages over the batch: splitting the batch over ranks changes the result, unless it
is synchronized. ``group`` norm works within one sample, so that data parallelism equals a single
process: the equality tests of this book use it. Both have two parameters a channel.

Sources: Ioffe and Szegedy 2015, arXiv:1502.03167; Wu and He, "Group Normalization", 2018,
arXiv:1803.08494.
"""

from torch import nn

NORMS = ("batch", "group")
CONV = {1: nn.Conv1d, 2: nn.Conv2d}
_BATCH_NORM = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d}


def norm_layer(config, channels, dims):
    """Return the norm that ``config.norm`` names, for inputs (B, channels, *dims lengths)."""
    if config.norm == "group":
        return nn.GroupNorm(config.groups, channels)
    return _BATCH_NORM[max(dims, 1)](channels)  # BatchNorm1d takes (B, C) as well


def convolution(dims, c_in, c_out, kernel, stride=1):
    """Return a convolution without bias (a norm follows) that keeps the length at stride 1."""
    return CONV[dims](c_in, c_out, kernel, stride=stride, padding=kernel // 2, bias=False)


def check_positive(config, *names):
    """Raise ValueError unless each of these fields is an integer above 0."""
    for name in names:
        value = getattr(config, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(
                f"{type(config).__name__}.{name} is {value!r}; give an integer above 0"
            )


def check_choice(config, name, choices):
    """Raise ValueError unless the field is one of ``choices``."""
    value = getattr(config, name)
    if value not in choices:
        names = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{type(config).__name__}.{name} is {value!r}; choose one of {names}")


def check_groups(config, widths):
    """Raise ValueError where group norm is chosen and its groups do not divide a width."""
    check_positive(config, "groups")
    for width in widths:
        if config.norm == "group" and width % config.groups:
            raise ValueError(
                f"{type(config).__name__}.groups is {config.groups}, which does not divide the "
                f"{width} channels of a layer; choose a divisor"
            )
