"""1-bit Adam: Adam whose momentum travels as signs, once its second moment has settled.

    for T_w steps:  Adam on the averaged gradient
    then, with v as it is after T_w steps:
        m = average over the ranks, in signs, of  beta1 m + (1 - beta1) g
        w = w - lr m_hat / (sqrt(v_hat) + eps)

Adam's step is not linear in the gradient, so error feedback on gradients does not carry over. With
v frozen it is linear in m, and the errors cancel from step to step (Tang et al. 2021). The averages
are :mod:`two_way`'s: 1 bit a number each way, error feedback on both.

    traffic saved = 1 / (w + (1-w)/b)     w = T_w / T, b = 16 bits a number uncompressed, or 32

m_hat and v_hat are corrected for their start at 0 as in Adam, v_hat for T_w steps. The paper leaves
the correction out; for its T_w of thousands of steps it is 1. The paper ends the warm-up when the
sum of v over 1/(1-beta2) steps has grown by less than 4 %, and not before the learning rate's own
warm-up is over.

All numbers of a tensor's piece move by the same m. Where v is much smaller than its neighbors'
the step is much too large, and where it is 0 (no gradient in the whole warm-up) it would be m/eps:
such numbers stay as they are from then on.
"""

import torch

from lsdl_lib.communication.compression.agreement import (
    check_same_start,
    check_trainable,
)
from lsdl_lib.communication.compression.peers import Peers
from lsdl_lib.communication.compression.two_way import TwoWaySign


class OneBitAdam(torch.optim.Optimizer):
    """Adam that averages over the ranks itself: do not wrap the model in data parallelism.

    Every rank calls ``step()`` equally often, each with its own gradients. A missing gradient
    counts as zeros. A step whose average is not finite is left out on all ranks, and changes no
    state; so no scaler may skip steps on its own.

    ``state_dict()`` holds Adam's state, which torch's Adam takes and gives, and this rank's errors:
    every rank saves and loads its own.

    Args:
        params: parameters of one type on one device, or groups of them; the same values on every
            rank.
        lr, betas, eps, weight_decay: as in ``torch.optim.Adam``; weight decay is added to the
            gradient.
        warm_up_steps: T_w, at least 1.
        peers: :class:`Peers`; None: all ranks, with torch's collectives.
        compressor: averages the momentum; None: :class:`TwoWaySign`. ``Exact()`` shows what frozen
            v does alone.
        maximize: go up instead of down.

    Raises:
        ValueError: a value out of range, or the ranks' parameters differ.
        TypeError: the parameters' types differ, are not real floats, are shards of a whole (FSDP,
            ZeRO), or something else averages their gradients.
    """

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0.0,
        *,
        warm_up_steps,
        peers=None,
        compressor=None,
        maximize=False,
    ):
        _check(lr, betas, eps, weight_decay, warm_up_steps)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
        }
        super().__init__(params, defaults)
        self.warm_up_steps = warm_up_steps
        self.peers = peers if peers is not None else Peers()
        self.compressor = compressor if compressor is not None else TwoWaySign()
        check_same_start(self._parameters(), self.peers)

    def add_param_group(self, param_group):
        """Add parameters, before the first step: v must be warm for all alike."""
        if self.state:
            raise RuntimeError("steps were taken: give all parameters when you make the optimizer")
        super().add_param_group(param_group)
        check_trainable(self._parameters())

    @property
    def steps(self):
        """Steps taken, without those left out."""
        state = self.state.get(next(iter(self._parameters())))
        return int(state["step"]) if state else 0

    @property
    def compressing(self):
        """Tell whether the next step's average is compressed."""
        return self.steps >= self.warm_up_steps

    @torch.no_grad()
    def step(self, closure=None):
        """Average over the ranks and take a step.

        Args:
            closure: evaluates the model again and returns the loss.

        Returns:
            The closure's loss, or None.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        parameters = self._parameters()
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter].update(
                    step=torch.zeros((), dtype=torch.float32),
                    exp_avg=torch.zeros_like(parameter, memory_format=torch.preserve_format),
                    exp_avg_sq=torch.zeros_like(parameter, memory_format=torch.preserve_format),
                )
        compressing = self.compressing
        average = self._average(self._momenta() if compressing else self._gradients(), compressing)
        # The average is the same on all ranks, so all decide alike.
        if average is not None:
            for (group, parameter), value in zip(self._each(), average):
                self._update(group, parameter, value, compressing)
        return loss

    def _average(self, tensors, compressing):
        """Return the averages over ranks, or None where they are not finite."""
        shapes = [tensor.shape for tensor in tensors]
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        if compressing:
            flat, _ = self.compressor.aggregate(flat, self.peers, 0, shapes)
        else:
            flat = self.peers.mean_(flat)
        if not torch.isfinite(flat).all():
            return None
        pieces = flat.split([shape.numel() for shape in shapes])
        return [piece.view(shape) for piece, shape in zip(pieces, shapes)]

    def _update(self, group, parameter, average, compressing):
        """Take the step of one parameter."""
        state, (beta1, beta2) = self.state[parameter], group["betas"]
        momentum, square = state["exp_avg"], state["exp_avg_sq"]
        state["step"] += 1
        if compressing:
            momentum.copy_(average.masked_fill(square == 0, 0))
        else:
            average = _to_descend(group, parameter, average)
            momentum.lerp_(average, 1 - beta1)
            square.mul_(beta2).addcmul_(average, average, value=1 - beta2)
        steps = int(state["step"])
        step_size = float(group["lr"]) / (1 - beta1**steps)
        correction = (1 - beta2 ** min(steps, self.warm_up_steps)) ** 0.5
        parameter.addcdiv_(
            momentum, (square.sqrt() / correction).add_(group["eps"]), value=-step_size
        )

    def _momenta(self):
        """Return each parameter's momentum with this rank's gradient."""
        return [
            self.state[parameter]["exp_avg"].lerp(
                _to_descend(group, parameter, gradient), 1 - group["betas"][0]
            )
            for (group, parameter), gradient in zip(self._each(), self._gradients())
        ]

    def _gradients(self):
        """Return each parameter's gradient on this rank; zeros where there is none."""
        gradients = []
        for parameter in self._parameters():
            if parameter.grad is not None and parameter.grad.is_sparse:
                raise TypeError(
                    "1-bit Adam takes no sparse gradients: use an embedding's dense ones"
                )
            gradients.append(
                torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            )
        return gradients

    def _each(self):
        return [(group, parameter) for group in self.param_groups for parameter in group["params"]]

    def _parameters(self):
        return [parameter for _, parameter in self._each()]

    def state_dict(self):
        """Return Adam's state, the length of the warm-up and this rank's errors."""
        return super().state_dict() | {
            "warm_up_steps": self.warm_up_steps,
            "compressor": self.compressor.state_dict(),
        }

    def load_state_dict(self, state_dict):
        """Go on from a saved state: of this class, or of torch's Adam, which has no errors."""
        super().load_state_dict(state_dict)
        for group in self.param_groups:  # torch's Adam has more settings than these
            for name in [name for name in group if name not in {*self.defaults, "params"}]:
                del group[name]
        self.warm_up_steps = state_dict.get("warm_up_steps", self.warm_up_steps)
        if "compressor" in state_dict:
            self.compressor.load_state_dict(state_dict["compressor"])


def traffic_saved(warm_up_steps, steps, dense_bytes, compressed_bytes):
    """Return how many times fewer bytes travel than with an uncompressed average at every step.

    Args:
        warm_up_steps, steps: T_w and T.
        dense_bytes: of a step of the warm-up; compressed_bytes: of a later one.
    """
    sent = warm_up_steps * dense_bytes + (steps - warm_up_steps) * compressed_bytes
    return steps * dense_bytes / sent


def _to_descend(group, parameter, gradient):
    gradient = -gradient if group["maximize"] else gradient
    if not group["weight_decay"]:
        return gradient
    return gradient.add(parameter, alpha=group["weight_decay"])


def _check(lr, betas, eps, weight_decay, warm_up_steps):
    if not all(0 <= beta < 1 for beta in betas):
        raise ValueError(f"betas={betas!r}: give two numbers from 0 to below 1")
    for name, value in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay)):
        if not value >= 0:
            raise ValueError(f"{name}={value!r}: give a number of at least 0")
    if not isinstance(warm_up_steps, int) or warm_up_steps < 1:
        raise ValueError(
            f"warm_up_steps={warm_up_steps!r}: give a whole number of at least 1. "
            "Without a step of Adam there is no second moment to divide by"
        )
