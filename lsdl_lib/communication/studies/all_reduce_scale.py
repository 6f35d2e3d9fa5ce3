"""What every all-reduce costs on up to 1,024 ranks, counted by playing it through step by step.

    python -m lsdl_lib.communication.studies.all_reduce_scale        about 3 minutes, one core

No processes: the library's own generators run for all ranks in one. Three simulations give the
three coefficients of ``time = steps alpha + vectors n beta + sums n gamma``: one with alpha = 1 and
the rest 0, and so on. One point: method, ranks, steps, vectors, sums. The ring stops at 256 ranks:
at 1,024 it sends 2 million messages.
"""

import functools
import math

import torch

from lsdl_lib.claims import studies
from lsdl_lib.communication.collectives import doubling, halving, ring, star, torus, tree
from lsdl_lib.communication.cost import Link, simulate

CHAPTER, NAME = "communication/collectives", "all-reduce-scale"
COMMAND = "python -m lsdl_lib.communication.studies.all_reduce_scale"
RANKS = tuple(2**k for k in range(1, 11))
MOST = {"ring": 256}
STEPS = {
    "star": star.star_steps,
    "ring": ring.ring_steps,
    "doubling": doubling.doubling_steps,
    "halving": halving.halving_steps,
    "tree": tree.tree_steps,
}


def steps_of(method, p):
    """Return the generator function ``steps(flat, reduce, messages)`` of an all-reduce."""
    if method == "torus":
        return functools.partial(torus.torus_steps, width=torus.squarest_width(p))
    return STEPS[method]


def coefficients(method, p):
    """Simulate an all-reduce on p ranks; return its (steps, vectors, sums), see the module."""
    n = 2 * math.lcm(p, doubling.largest_power_of_two(p))  # elements: all chunks are equal
    found = []
    for link in (Link(1.0, 0.0), Link(0.0, 1 / (4 * n)), Link(0.0, 0.0, 1 / (4 * n))):
        tensors = [torch.zeros(n) for _ in range(p)]
        found.append(simulate(steps_of(method, p), tensors, link).seconds)
    return tuple(found)


def main(ranks=RANKS, folder=None):
    """Run the simulations and store them."""
    points = []
    for p in ranks:
        for method in (*STEPS, "torus"):
            if p > MOST.get(method, p):
                continue
            steps, vectors, sums = coefficients(method, p)
            points.append(
                {"method": method, "ranks": p, "steps": steps, "vectors": vectors, "sums": sums}
            )
        print(f"{p:,} ranks", flush=True)
    return studies.write(
        CHAPTER,
        NAME,
        points,
        command=COMMAND,
        clock="simulated",
        ranks=list(ranks),
        folder=folder,
    )


if __name__ == "__main__":
    print(main())
