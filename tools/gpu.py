"""Runs what needs GPUs and bundles the results: ``python -m tools.gpu BUNDLE.json``.

The tests marked ``gpu``, then every chapter at the ``gpu`` tier on all GPUs, then one JSON file
with all records and a description of the machine, for ``make import-records``. A failure does not
stop the rest, and the bundle is written from what there is; the exit status tells.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import torch

from tools.toc import ROOT

WORK = ROOT / "_build" / "gpu"
NO_TESTS = 5  # pytest's exit status when nothing was collected


def why_no_gpu():
    """Return a sentence that says why PyTorch sees no GPU, or "" if it sees one."""
    if torch.cuda.device_count():
        return ""
    if torch.version.cuda is None and torch.version.hip is None:
        return (
            f"PyTorch {torch.__version__} in .venv is a CPU build. README.md says how to choose a "
            "CUDA build; remove .venv first."
        )
    return "PyTorch sees none. Does nvidia-smi list one? Does CUDA_VISIBLE_DEVICES hide it?"


def main(arguments=None):
    """Run all steps; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.gpu", description=__doc__)
    parser.add_argument("bundle", type=Path, help="the file to write")
    bundle = parser.parse_args(arguments).bundle.resolve()
    reason = why_no_gpu()
    if reason:
        print(f"make gpu needs a GPU. {reason}", file=sys.stderr)
        return 1
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    print(f"{len(names)} GPU(s): {', '.join(sorted(set(names)))}", flush=True)
    records = WORK / "records"
    shutil.rmtree(records, ignore_errors=True)
    statuses = [
        _run("pytest", "tests", "-m", "gpu"),
        _run("tools.execute", "--into", str(WORK / "book"), "--records", str(records), tier="gpu"),
        _run("lsdl_lib.claims", "bundle", str(bundle), "--records", str(records)),
    ]
    if statuses[0] == NO_TESTS:
        statuses[0] = 0
    if statuses[2] == 0:
        print(f"The bundle: {bundle}. To merge it: make import-records BUNDLE={bundle}")
    return int(any(statuses))


def _run(module, *arguments, tier=None):
    environment = os.environ | ({"LSDL_TIER": tier} if tier else {})
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
