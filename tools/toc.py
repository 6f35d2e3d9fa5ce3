"""The pages of the book in reading order, from ``_toc.yml``.

``python -m tools.toc`` prints the chapters: the pages that are notebooks.
"""

from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "book"


def pages(toc=ROOT / "_toc.yml"):
    """Return the names of all pages in reading order, such as ``communication/collectives``."""
    return list(_files(yaml.safe_load(Path(toc).read_text(encoding="utf-8"))))


def chapters(book=BOOK):
    """Return ``{name: path}`` of the pages that are notebooks, in reading order."""
    notebooks = {name: Path(book) / f"{name}.ipynb" for name in pages()}
    return {name: path for name, path in notebooks.items() if path.exists()}


def _files(entry):
    for key in ("root", "file"):
        if key in entry:
            yield entry[key]
    for key in ("parts", "chapters", "sections"):
        for child in entry.get(key) or []:
            yield from _files(child)


if __name__ == "__main__":
    print("\n".join(str(path.relative_to(ROOT)) for path in chapters().values()))
