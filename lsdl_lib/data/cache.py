"""Arrays made once and kept in the user's cache folder.

Several processes may ask for the same file at once. Each one that finds none writes its own copy in
a scratch folder beside it and renames it into place. A rename is atomic: a reader sees no file or a
whole file, never half of one. The losers' copies hold the same values, so that it does not matter
who is last.
"""

import os
import tempfile
import warnings
import zipfile
from pathlib import Path

import numpy as np


def cache_folder():
    """Return the folder for generated data: ``$XDG_CACHE_HOME/lsdl``, else ``~/.cache/lsdl``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "lsdl"


def cached_arrays(name, write):
    """Return the arrays of the cached file ``name``, made by ``write`` where there is none.

    A file that cannot be read (cut short by a full disk, say) is made again. Where the folder
    cannot be written, the arrays are made, returned and not kept, with a warning that names it.

    Args:
        name: file name ending in ``.npz``; it must name everything that the values depend on.
        write: called as ``write(path)``; leaves an ``.npz`` file at ``path``.

    Returns:
        dict from array name to ``numpy.ndarray``.
    """
    folder = cache_folder()
    try:
        return _read(folder / name)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        pass
    keep = _writable(folder)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=folder if keep else None) as scratch:
        fresh = Path(scratch) / name
        write(fresh)
        arrays = _read(fresh)
        if keep:
            os.replace(fresh, folder / name)
    return arrays


def _read(path):
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def _writable(folder):
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError as error:
        warnings.warn(
            f"cannot keep generated data in {folder} ({error}); it is made again each time. "
            "Set XDG_CACHE_HOME to a folder that you can write",
            stacklevel=4,
        )
        return False
