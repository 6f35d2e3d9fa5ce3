"""The offline scripts are fetched once, checked, and the lack of npm or network is said."""

import hashlib
import io
import json
import subprocess
import tarfile

import pytest

from tools import build, vendor


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with a tarball of three files, of which one is kept; npm that copies it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name in ("package/dist/embed.js", "package/dist/embed.js.map", "package/embed.js"):
            member = tarfile.TarInfo(name)
            member.size = len(name)
            archive.addfile(member, io.BytesIO(name.encode()))
    made = vendor.Package(
        name="@scope/name",
        version="1.2.3",
        sha256=hashlib.sha256(buffer.getvalue()).hexdigest(),
        folder="widgets",
        source="package/dist",
        keep=("embed.js",),
    )
    calls = []

    def npm(command, **options):
        calls.append(command)
        (options["cwd"] / "scope-name-1.2.3.tgz").write_bytes(buffer.getvalue())
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(vendor, "PACKAGES", (made,))
    monkeypatch.setattr(vendor, "npm", lambda: ["npm"])
    monkeypatch.setattr(subprocess, "run", npm)
    return made, calls


def test_keeps_the_named_files_and_asks_once(package, tmp_path):
    _, calls = package
    folder = vendor.vendor(tmp_path / "vendor")
    kept = sorted(path.name for path in folder.rglob("*") if path.is_file())
    assert kept == ["embed.js", "sha256"]
    assert (folder / "widgets" / "embed.js").read_text() == "package/dist/embed.js"
    vendor.vendor(folder)
    assert len(calls) == 1
    assert calls[0][:3] == ["npm", "pack", "@scope/name@1.2.3"]


def test_another_file_than_expected_is_refused(package, tmp_path, monkeypatch):
    made, _ = package
    changed = vendor.Package(**{**vars(made), "sha256": "0" * 64})
    monkeypatch.setattr(vendor, "PACKAGES", (changed,))
    with pytest.raises(vendor.CannotFetch, match="has SHA-256"):
        vendor.vendor(tmp_path / "vendor")
    assert not (tmp_path / "vendor").exists()


def test_no_npm_is_said(package, tmp_path, monkeypatch):
    monkeypatch.setattr(vendor, "npm", lambda: None)
    with pytest.raises(vendor.CannotFetch, match="no npm"):
        vendor.vendor(tmp_path / "vendor")


def test_failure_of_npm_is_said(package, tmp_path, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "npm error\nnpm error network ENOTFOUND")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(vendor.CannotFetch, match="ENOTFOUND"):
        vendor.vendor(tmp_path / "vendor")


def test_without_the_scripts_the_build_goes_on_and_says_so(monkeypatch, capsys):
    def cannot():
        raise vendor.CannotFetch("there is no npm")

    monkeypatch.setattr(build, "vendor", cannot)
    assert build.offline_scripts() == {}
    assert "will need the network: there is no npm" in capsys.readouterr().out


def test_npm_of_the_python_package_is_found(monkeypatch):
    monkeypatch.setattr(vendor.shutil, "which", lambda name: None)
    command = vendor.npm()
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert int(json.loads(f'"{version.stdout.strip()}"').split(".")[0]) >= 10
