"""Seeded initial values: the same seed gives the same parameters on any device, rank and type.

Each parameter is drawn by a generator of its own, on the host, in float32::

    generator(seed, name):  seeded with the first 8 bytes of SHA-256("seed/name")

so that the values of one do not depend on which others were drawn before it, nor on the device; a
float64 model holds exactly the float32 model's values. The global random state is never touched.
"""

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode


@dataclass(frozen=True)
class Normal:
    """Normal distribution with mean 0."""

    std: float

    def draw(self, shape, generator):
        """Return float32 samples on the host."""
        return torch.randn(shape, generator=generator, device=generator.device).mul_(self.std)


@dataclass(frozen=True)
class Uniform:
    """Uniform distribution on (-bound, bound)."""

    bound: float

    def draw(self, shape, generator):
        """Return float32 samples on the host."""
        uniform = torch.rand(shape, generator=generator, device=generator.device)
        return uniform.mul_(2 * self.bound).sub_(self.bound)


@dataclass(frozen=True)
class Constant:
    """Every element the same."""

    value: float

    def draw(self, shape, generator):
        """Return float32 values on the host."""
        return torch.full(shape, self.value, device=generator.device, dtype=torch.float32)


def linear_uniform(fan_in):
    """Return torch's own rule for a linear layer's weight and bias: U(-1/sqrt(fan_in), +)."""
    return Uniform(fan_in**-0.5)


@contextmanager
def uninitialized(device=None):
    """Make modules on ``device`` without torch's own initial values: no time, no random numbers.

    ``device`` left out is torch's current default, ``torch.device("meta")`` in a ``with`` included.
    """
    with torch.device(device if device is not None else torch.get_default_device()), _NoInit():
        yield


def initialize(model, rule, *, seed, dtype=None):
    """Convert ``model`` to ``dtype`` and draw all its parameters.

    Args:
        model: any module. A tied parameter is drawn once, under the first of its names. Meta and
            fake tensors have no values and are skipped.
        rule: ``rule(module, name, parameter)`` returns ``Normal``, ``Uniform`` or ``Constant`` for
            the parameter called ``name`` in the module that owns it.
        seed: any integer.
        dtype: floating-point type; left out, the parameters keep theirs.
    """
    if dtype is not None:
        model.to(dtype=dtype)
    done = set()
    for prefix, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) in done or parameter.is_meta or isinstance(parameter, FakeTensor):
                continue
            done.add(id(parameter))
            values = rule(module, name, parameter).draw(
                parameter.shape, _generator(seed, f"{prefix}.{name}")
            )
            with torch.no_grad():
                parameter.copy_(values)


def default_rule(module, name, parameter):
    """Give norms weight 1 and bias 0, linear layers torch's rule, convolutions He's (fan out).

    He's rule is Normal(sqrt(2 / (c_out k^d))): it keeps the variance of gradients through a ReLU.
    Source: He et al., "Delving Deep into Rectifiers", 2015, arXiv:1502.01852, section 2.2.
    """
    if isinstance(module, nn.Linear):
        return linear_uniform(module.in_features)
    if isinstance(module, (nn.Conv1d, nn.Conv2d)):
        fan_out = parameter.shape[0] * parameter[0, 0].numel()
        return Normal((2 / fan_out) ** 0.5)
    return Constant(1.0 if name == "weight" else 0.0)


def _generator(seed, name):
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big", signed=True))


class _NoInit(TorchFunctionMode):
    """Turn the functions of ``torch.nn.init`` into no-ops."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if getattr(function, "__module__", None) == "torch.nn.init":
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return function(*args, **kwargs)
