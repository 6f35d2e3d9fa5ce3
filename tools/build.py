"""Builds the site with Jupyter Book into ``_build/html``: ``python -m tools.build``.

Nothing is executed: the pages show the outputs that the notebooks hold. Any warning of Sphinx (a
broken reference, a missing citation) fails the build. Pages load nothing from other sites: the
scripts for widgets and formulas come from ``_build/vendor`` (see :mod:`tools.vendor`).
"""

import argparse
import hashlib
import shutil
import sys
import time
from pathlib import Path

from jupyter_book.sphinx import build_sphinx

from tools.toc import BOOK, ROOT
from tools.vendor import CannotFetch, vendor

SITE = ROOT / "_build" / "html"
INDEX = """\
<!doctype html>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url=intro.html">
<title>Large-Scale Deep Learning</title>
<a href="intro.html">Large-Scale Deep Learning</a>
"""


def build(source=BOOK, site=SITE):
    """Build the pages of ``source`` into ``site``; return True when that went without a warning."""
    source, site = Path(source).resolve(), Path(site)
    key = _key(source)
    key_file = site.with_name(f"{site.name}.key")
    if not key_file.exists() or key_file.read_text(encoding="utf-8") != key:
        shutil.rmtree(site, ignore_errors=True)
        shutil.rmtree(site.with_name("doctrees"), ignore_errors=True)
    result = build_sphinx(
        str(source),
        str(site),
        noconfig=True,
        path_config=str(ROOT / "_config.yml"),
        confoverrides={
            "external_toc_path": str(ROOT / "_toc.yml"),
            "latex_individualpages": False,
            **offline_scripts(),
        },
        doctreedir=str(site.with_name("doctrees")),
        warningiserror=True,
        keep_going=True,
        quiet=True,
    )
    if result != 0:
        key_file.unlink(missing_ok=True)
        return False
    (site / "index.html").write_text(INDEX, encoding="utf-8")
    key_file.write_text(key, encoding="utf-8")
    return True


def offline_scripts():
    """Return the settings that make pages load their scripts from the site, {} without npm."""
    try:
        folder = vendor()
    except CannotFetch as reason:
        print(f"Pages with widgets or formulas will need the network: {reason}.")
        return {}
    return {
        "html_extra_path": [str(folder)],
        "mathjax_path": "../mathjax/tex-mml-chtml.js",
        "nb_ipywidgets_js": {"../widgets/embed.js": {}},
    }


def _key(source):
    """Return a hash of all that a page depends on besides its own source; Sphinx sees only that."""
    text = hashlib.sha256(str(source).encode())
    for path in sorted([ROOT / "_config.yml", ROOT / "_toc.yml", *(ROOT / "tools").glob("*.py")]):
        text.update(path.read_bytes())
    text.update(str((ROOT / "_build" / "vendor").exists()).encode())
    return text.hexdigest()


def main(arguments=None):
    """Build, and say where the site is and how to open it; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", default=BOOK, help="the folder with the pages")
    source = Path(parser.parse_args(arguments).source)
    start = time.monotonic()
    print(f"Building the site from {source}.")
    if not build(source):
        print("The site was not built: see the warnings above.", file=sys.stderr)
        return 1
    print(f"Done in {time.monotonic() - start:.0f} s. The book is {SITE / 'index.html'}")
    opener = "open" if sys.platform == "darwin" else "xdg-open"
    print(f"To open it: {opener} {SITE.relative_to(ROOT)}/index.html, or make serve")
    return 0


if __name__ == "__main__":
    sys.exit(main())
