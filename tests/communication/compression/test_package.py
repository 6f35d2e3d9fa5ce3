"""The package offers every compressor that its modules define."""

import importlib
import inspect
import pkgutil

from lsdl_lib.communication import compression

BASES = {"SegmentedCompressor", "RandomCompressor"}


def test_every_compressor_is_public():
    defined = set()
    for module in pkgutil.iter_modules(compression.__path__):
        found = importlib.import_module(f"{compression.__name__}.{module.name}")
        for name, thing in inspect.getmembers(found, inspect.isclass):
            if issubclass(thing, compression.Compressor):
                defined.add(name)
    assert len(defined) > 10
    assert defined - BASES <= set(compression.__all__)


def test_public_names_are_there():
    assert all(hasattr(compression, name) for name in compression.__all__)
