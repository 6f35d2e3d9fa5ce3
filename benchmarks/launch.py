"""Starting 4 ranks: ``lsdl_lib.launch`` against what PyTorch offers.

Both sides start 4 processes with a gloo group, add a number over the ranks and end them. A launch
is warm (the fork server is there), as it is for all but the first of a chapter. Peers:

- ``torch.multiprocessing.spawn``, what the tutorials use;
- torch's elastic agent with its ``forkserver`` start method, torch preloaded: the engine of
  ``torchrun``, as a function.

Run: ``python benchmarks/launch.py`` (some ten minutes: spawn imports torch in every rank).
"""

import logging
import multiprocessing
import tempfile
import uuid
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing
from pairs import paired, report
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from lsdl_lib import launch

RANKS = 4


def add_up():
    total = torch.ones(1)
    dist.all_reduce(total)
    return total.item()


def rank_of_spawn(rank, path):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=RANKS)
    add_up()
    dist.destroy_process_group()


def rank_of_agent():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    total = add_up()
    dist.destroy_process_group()
    return total


def ours():
    assert launch(add_up, ranks=RANKS, threads=1) == [RANKS] * RANKS


def spawn():
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(rank_of_spawn, (Path(folder) / "store",), nprocs=RANKS)


def agent():
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=RANKS,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        start_method="forkserver",
        monitor_interval=0.01,
    )
    totals = elastic_launch(config, rank_of_agent)()
    assert totals == dict.fromkeys(range(RANKS), RANKS)


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # the agent's
    multiprocessing.set_forkserver_preload(["torch.distributed", "lsdl_lib.launch.rank"])
    report("launch, 4 ranks, against torch's elastic agent on a fork server", paired(ours, agent))
    report("launch, 4 ranks, against torch.multiprocessing.spawn", paired(ours, spawn, warmup=1))
