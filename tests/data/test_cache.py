import os
import subprocess
import sys

import numpy as np
import pytest

from lsdl_lib.data import cache


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "lsdl"


def writer(calls, value=7):
    def write(path):
        calls.append(path)
        np.savez(path, numbers=np.arange(5) + value)

    return write


def test_makes_once_then_reads(folder):
    calls = []
    first = cache.cached_arrays("a.npz", writer(calls))
    second = cache.cached_arrays("a.npz", writer(calls, value=99))
    assert len(calls) == 1
    assert first["numbers"].tolist() == second["numbers"].tolist() == [7, 8, 9, 10, 11]
    assert os.listdir(folder) == ["a.npz"]


@pytest.mark.parametrize("junk", [b"", b"not a zip", b"PK\x03\x04 cut short"])
def test_unreadable_file_is_made_again(folder, junk):
    folder.mkdir()
    (folder / "a.npz").write_bytes(junk)
    arrays = cache.cached_arrays("a.npz", writer([]))
    assert arrays["numbers"].tolist() == [7, 8, 9, 10, 11]
    assert cache.cached_arrays("a.npz", None)["numbers"].tolist() == [7, 8, 9, 10, 11]


def test_failed_writer_leaves_nothing(folder):
    def write(path):
        path.write_bytes(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        cache.cached_arrays("a.npz", write)
    assert os.listdir(folder) == []


def test_folder_that_cannot_be_made_warns_and_returns(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    calls = []
    for _ in range(2):
        with pytest.warns(UserWarning, match=r"cannot keep .*file/lsdl.*XDG_CACHE_HOME"):
            arrays = cache.cached_arrays("a.npz", writer(calls))
        assert arrays["numbers"].tolist() == [7, 8, 9, 10, 11]
    assert len(calls) == 2


def test_default_folder_is_under_home(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.cache_folder() == tmp_path / ".cache" / "lsdl"


PROCESS = """
import runpy, sys, time
import numpy as np
cached_arrays = runpy.run_path(sys.argv[1])["cached_arrays"]
def write(path):
    time.sleep(0.3)  # long enough for all of them to find no file
    np.savez(path, numbers=np.arange(100_000))
print(cached_arrays("a.npz", write)["numbers"].sum())
"""


def test_four_processes_at_once(folder):
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, cache.__file__], stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    sums = [process.communicate(timeout=60)[0].strip() for process in started]
    assert sums == [str(99_999 * 100_000 // 2)] * 4
    assert os.listdir(folder) == ["a.npz"]
