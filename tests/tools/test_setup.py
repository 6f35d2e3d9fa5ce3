"""tools/setup.sh chooses a Python and says plainly what is missing. Nothing is installed here."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tools.toc import ROOT

GOOD = (3, 12, 1)
SYSTEM = ["sh", "cat", "cksum", "cp", "rm", "mkdir", "touch", "chmod", "grep", "tail", "tee"]
SYSTEM += ["uname", "dirname", "basename"]


@pytest.fixture
def tree(tmp_path):
    """A folder with the script and the files that it reads, and an empty folder for commands."""
    tree = tmp_path / "tree"
    (tree / "tools").mkdir(parents=True)
    shutil.copy(ROOT / "tools" / "setup.sh", tree / "tools")
    for name in ("requirements.txt", "constraints.txt", "pyproject.toml"):
        (tree / name).write_text("")
    (tmp_path / "bin").mkdir()
    return tree


def command(tree, name, text):
    path = tree.parent / "bin" / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def python(tree, name, version=GOOD, venv=True, pip="exit 0"):
    """A stand-in for Python that answers what the script asks, and makes a .venv like itself."""
    inside = int((3, 11) <= version[:2] <= (3, 13))
    text = f"""
        case "$*" in
            *version_info*) exit {1 - inside} ;;
            *python_version*) echo {".".join(map(str, version))} ;;
            *ensurepip*) exit {0 if venv else 1} ;;
            "-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; touch "$3/bin/pip"
                         chmod +x "$3/bin/pip" ;;
            "-m pip "*) {pip} ;;
            *) exit 9 ;;
        esac"""
    return command(tree, name, text)


def setup(tree, **environment):
    """Run the script where only the stand-ins and the system's small tools are found."""
    path = f"{tree.parent / 'bin'}:{tools_folder(tree)}"
    return subprocess.run(
        ["/bin/sh", "tools/setup.sh"],
        cwd=tree,
        env={"PATH": path, "HOME": str(tree), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def tools_folder(tree):
    folder = tree.parent / "system"
    if not folder.exists():
        folder.mkdir()
        for name in SYSTEM:
            os.symlink(shutil.which(name), folder / name)
    return folder


def test_takes_the_first_python_that_can_be_used(tree):
    python(tree, "python3.11", version=(3, 10, 2))
    python(tree, "python3.12", venv=False)
    python(tree, "python3", version=(3, 13, 0))
    result = setup(tree)
    assert result.returncode == 0, result.stderr
    assert "Making .venv with python3 (3.13.0)." in result.stdout


def test_second_call_does_nothing(tree):
    python(tree, "python3.12")
    assert "Installing" in setup(tree).stdout
    again = setup(tree)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")


def test_changed_requirements_are_installed(tree):
    python(tree, "python3.12")
    setup(tree)
    (tree / "requirements.txt").write_text("numpy==2.0.0\n")
    again = setup(tree)
    assert "Installing" in again.stdout
    assert "Making" not in again.stdout


def test_moved_folder_gets_a_new_environment(tree):
    python(tree, "python3.12")
    setup(tree)
    moved = Path(shutil.move(tree, tree.parent / "moved"))
    result = setup(moved)
    assert result.returncode == 0, result.stderr
    assert "made in another folder" in result.stdout
    assert "Making .venv" in result.stdout


def test_environment_whose_python_is_gone_is_made_again(tree):
    python(tree, "python3.12")
    setup(tree)
    (tree / ".venv" / "bin" / "python").unlink()
    result = setup(tree)
    assert "is gone: making it again" in result.stdout
    assert result.returncode == 0


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        ({}, "Found: no Python at all."),
        ({"python3": (3, 10, 4)}, "Found: python3=3.10.4."),
        ({"python3": (3, 14, 0), "python": (2, 7, 18)}, "Found: python3=3.14.0 python=2.7.18."),
    ],
)
def test_wrong_versions_are_named(tree, versions, said):
    for name, version in versions.items():
        python(tree, name, version=version)
    result = setup(tree)
    assert result.returncode == 1
    assert "needs Python 3.11, 3.12 or 3.13" in result.stderr
    assert said in result.stderr
    assert "make book PYTHON=" in result.stderr


def test_missing_venv_module_is_named_with_the_package(tree):
    python(tree, "python3.12", venv=False)
    result = setup(tree)
    assert result.returncode == 1
    assert "lacks the module venv" in result.stderr
    assert "apt install python3.12-venv" in result.stderr
    assert not (tree / ".venv").exists()


def test_python_that_was_asked_for_is_the_only_one_tried(tree):
    python(tree, "python3.12")
    result = setup(tree, PYTHON="/nowhere/python")
    assert result.returncode == 1
    assert "PYTHON=/nowhere/python does not start" in result.stderr


def test_existing_environment_says_that_another_python_was_asked_for(tree):
    python(tree, "python3.12")
    setup(tree)
    python(tree, "python3.13", version=(3, 13, 1))
    result = setup(tree, PYTHON="python3.13")
    assert "with Python 3.12.1. To use python3.13:  rm -r .venv" in result.stdout


@pytest.mark.parametrize(
    ("pip_says", "said"),
    [
        ("Failed to establish a new connection: [Errno -3] name resolution", "no network"),
        ("Could not install packages: [Errno 28] No space left on device", "disk is full"),
        ("ERROR: something else", "ERROR: something else"),
    ],
)
def test_failure_of_pip_is_explained_and_the_next_call_goes_on(tree, pip_says, said):
    python(tree, "python3.12", pip=f'echo "{pip_says}" >&2; exit 1')
    result = setup(tree)
    assert result.returncode == 1
    assert said in result.stderr
    assert ".venv/pip.log" in result.stderr
    python(tree, "mended")
    shutil.copy(tree.parent / "bin" / "mended", tree / ".venv" / "bin" / "python")
    again = setup(tree)
    assert again.returncode == 0, again.stderr
    assert "Making" not in again.stdout
