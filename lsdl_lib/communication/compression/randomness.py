"""Random numbers of a compressor: its own, different on every rank, saved with its state."""

import numpy as np
import torch
import torch.distributed as dist

from lsdl_lib.communication.compression.compressor import Compressor


class RandomCompressor(Compressor):
    """Base of the compressors that draw random numbers.

    Ranks must draw independently, or the errors would not average out; so each rank's generator is
    seeded with the seed and its rank.

    Args:
        seed: of the random numbers, at least 0.
    """

    unbiased = True

    def __init__(self, seed=0):
        self._seed = seed
        self._generator = None

    def uniform(self, like):
        """Return numbers from [0, 1) in float32, of the shape and on the device of ``like``."""
        generator = self.generator(like.device)
        return torch.rand(like.shape, generator=generator, device=like.device)

    def generator(self, device):
        """Return this rank's generator."""
        if self._generator is None:
            rank = dist.get_rank() if dist.is_initialized() else 0
            # Both are hashed: torch's generator on a CPU looks at 32 bits of its seed alone.
            mixed = np.random.SeedSequence([self._seed, rank]).generate_state(1)[0]
            self._generator = torch.Generator(device).manual_seed(int(mixed))
        return self._generator

    def state_dict(self):
        """Return the generator's state and its device."""
        if self._generator is None:
            return {}
        return {
            "generator": self._generator.get_state(),
            "device": str(self._generator.device),
        }

    def load_state_dict(self, state):
        """Go on with a saved generator's numbers."""
        self._generator = None
        if state:
            self._generator = torch.Generator(state["device"])
            self._generator.set_state(state["generator"].cpu())
