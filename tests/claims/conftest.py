"""What the claims' tests share: a chapter's claims written to a folder of the test."""

import pytest

from lsdl_lib.claims import Claims
from lsdl_lib.launch import Results


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder that ``LSDL_RECORDS`` names; the working folder has no book around it."""
    monkeypatch.setenv("LSDL_RECORDS", str(tmp_path / "records"))
    monkeypatch.delenv("LSDL_TIER", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "records"


@pytest.fixture
def claims(folder):
    return Claims("communication/collectives")


@pytest.fixture
def run():
    return Results([1, 2, 3, 4], backend="gloo", device="gpu-or-not", seconds=0.5)
