"""The known faults of other launchers (numbers as in the project's list of hard cases)."""

import socket

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from lsdl_lib import launch
from lsdl_lib.launch import LaunchError, rank

pytestmark = pytest.mark.usefixtures("no_rank_left")


def test_case_96_functions_without_an_importable_name():
    namespace = {}
    exec(
        "def cell_function(x):\n    return helper(x) + 1\ndef helper(x):\n    return 2 * x",
        namespace,
    )
    assert launch(namespace["cell_function"], 4, ranks=2, timeout=60) == [9, 9]
    assert launch(lambda x: x, 4, ranks=2, timeout=60) == [4, 4]


def test_case_97_cuda_used_before_the_fork_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    with pytest.raises(RuntimeError, match=r"CUDA was initialized in the fork server.*gloo"):
        rank.refuse_forked_cuda()


def test_case_97_ranks_on_the_processor_do_not_care(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert launch(dist.get_rank, ranks=2, timeout=60, backend="gloo") == [0, 1]


def test_case_98_no_fixed_port():
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", 29500))  # torch's default
        taken.listen()
        assert launch(dist.get_rank, ranks=2, timeout=60) == [0, 1]


def test_case_102_a_wrapped_module_with_its_group_is_refused_by_name():
    def wrapped():
        return DistributedDataParallel(torch.nn.Linear(2, 2))

    with pytest.raises(LaunchError, match=r"a DistributedDataParallel.*cannot be sent"):
        launch(wrapped, ranks=2, timeout=60)


def test_case_102_no_main_guard_is_needed():
    """Shown in test_failures.test_a_script_needs_no_main_guard; here: __main__ comes back."""
    import sys

    before = sys.modules["__main__"]
    launch(dist.get_rank, ranks=2, timeout=60)
    assert sys.modules["__main__"] is before
