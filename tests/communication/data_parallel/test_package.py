"""The package offers every way to average that its modules define."""

import importlib
import inspect
import pkgutil

from lsdl_lib.communication import data_parallel


def test_every_wrapper_is_public():
    defined = set()
    for module in pkgutil.iter_modules(data_parallel.__path__):
        found = importlib.import_module(f"{data_parallel.__name__}.{module.name}")
        for name, thing in inspect.getmembers(found, inspect.isclass):
            if issubclass(thing, data_parallel.DataParallel):
                defined.add(name)
    assert len(defined) > 3
    assert defined <= set(data_parallel.__all__)


def test_public_names_are_there():
    assert all(hasattr(data_parallel, name) for name in data_parallel.__all__)
