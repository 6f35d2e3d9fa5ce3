"""The comparison's registration: what was fixed before any of its runs."""

import hashlib
import tomllib
from pathlib import Path

FILE = Path(__file__).with_name("registration.toml")


def registration():
    """Return the registration as a dict of its tables."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def digest():
    """Return the first 16 hexadecimal digits of the file's SHA-256."""
    return hashlib.sha256(FILE.read_bytes()).hexdigest()[:16]
