"""What is made from the files: the map, the status page, and each chapter's line on its last run.

``python -m tools.pages`` writes them:

- ``book/map.md``: each chapter, the modules that it imports, their tests, the papers that it cites;
- ``book/status.md``: each chapter's last run, from ``book/records/<chapter>.run.json``;
- in each notebook the line that begins ``**Running time**:``, from the same records.

All hold only what the committed files say, so the same files give the same pages on every machine.
"""

import ast
import json
import re
from dataclasses import dataclass
from pathlib import Path

from lsdl_lib.claims import records
from tools import toc

PARTS = ("foundations", "generalization", "communication", "memory", "local", "together")
NOTE = "% Made by tools/pages.py from the notebooks and the records. Do not edit.\n"

MAP = """\
# Map of the book

Each chapter with the modules of the library that it takes its methods from, the tests that hold
those modules, and the [papers](references) that it cites. A part has one name in three places:
`book/`, `lsdl_lib/` and `tests/`. The names below are relative to the part's folder there.

{parts}

All chapters also use the shared modules `launch`, `measure`, `data`, `models`, `claims` and `show`.
The [library reference](api) describes everything.
"""

STATUS = """\
# Status

Each chapter's last run for the committed pages: how long it took from a clean {{term}}`kernel`,
and on what. The runs write these numbers.

{table}

The time is {{term}}`wall time <wall clock>` of the whole chapter. It differs between machines. The
last column is the chapter's newest run at the `gpu` {{term}}`tier` that somebody has sent;
[Records](running-records) says how to add yours.
"""


@dataclass(frozen=True)
class Chapter:
    """What a notebook says of itself."""

    name: str  # communication/collectives
    title: str
    modules: tuple  # of the parts, as dotted names, sorted
    papers: tuple  # BibTeX keys in the order in which they are cited first


def read_chapter(name, path, root=toc.ROOT):
    """Return the :class:`Chapter` of a notebook.

    Raises:
        ValueError: it has no title, a line ``# …`` in a Markdown cell.
    """
    cells = json.loads(Path(path).read_text(encoding="utf-8"))["cells"]
    prose = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    code = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
    title = re.search(r"^# +(.+)$", prose, flags=re.M)
    if title is None:
        raise ValueError(f"{path} has no title: begin its first cell with '# '")
    keys = ",".join(re.findall(r"\{cite(?::\w+)?\}`([^`]+)`", prose)).split(",")
    papers = dict.fromkeys(key.strip() for key in keys if key.strip())
    modules = sorted(imported_modules(code, root))
    return Chapter(name, title[1].strip(), tuple(modules), tuple(papers))


def imported_modules(code, root=toc.ROOT):
    """Return the modules of the parts that ``code`` imports, each where its names are defined.

    ``from lsdl_lib.communication import ring_all_reduce`` counts as the module that the package
    takes that name from.
    """
    lines = [line for line in code.splitlines() if not line.lstrip().startswith(("%", "!"))]
    found = set()
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found.add(_where_defined(node.module or "", alias.name, root))
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return {module for module in found if _part(module)}


def find_tests(modules, root=toc.ROOT):
    """Return the test files that import one of ``modules`` or a package that holds it.

    Paths are below ``root``, sorted.
    """
    root = Path(root)
    wanted = set(modules)
    for module in modules:
        names = module.split(".")
        wanted.update(".".join(names[:depth]) for depth in range(3, len(names)))
    found = []
    for path in sorted((root / "tests").rglob("test_*.py")):
        if imported_modules(path.read_text(encoding="utf-8"), root) & wanted:
            found.append(path.relative_to(root).as_posix())
    return found


def map_page(chapters, root=toc.ROOT):
    """Return the text of ``map.md``: a table a part, the parts in reading order."""
    sections = {}
    for chapter in chapters:
        part = chapter.name.split("/")[0]
        modules = [module.removeprefix("lsdl_lib.") for module in chapter.modules]
        tests = [test.removeprefix("tests/") for test in find_tests(chapter.modules, root)]
        row = [
            f"[{chapter.title}]({chapter.name})",
            _lines(f"`{module.removeprefix(part + '.')}`" for module in modules),
            _lines(f"`{test.removeprefix(part + '/')}`" for test in tests),
            _lines(f"{{cite:t}}`{key}`" for key in chapter.papers),
        ]
        sections.setdefault(part, []).append(row)
    parts = [
        f"## {part}\n\n{_table(['chapter', 'modules', 'tests', 'papers'], rows)}"
        for part, rows in sections.items()
    ]
    return NOTE + MAP.format(parts="\n\n".join(parts))


def status_page(chapters, book=toc.BOOK):
    """Return the text of ``status.md``."""
    rows = [
        [f"[{chapter.title}]({chapter.name})", *_run(chapter, book), _on_gpus(chapter, book)]
        for chapter in chapters
    ]
    return NOTE + STATUS.format(
        table=_table(["chapter", "tier", "time", "claims", "verified on", "date", "on GPUs"], rows)
    )


def running_time(name, book=toc.BOOK):
    """Return the line that says how long a chapter takes at each tier, and what that was run on."""
    path = Path(book) / "records" / f"{name}.run.json"
    if not path.exists():
        return "**Running time**: not yet run."
    run = json.loads(path.read_text(encoding="utf-8"))
    machine = run["machine"]
    times = [f"{run['seconds']:.0f} s at the {run['tier']} tier"]
    if "smoke_seconds" in run:
        times.append(f"{run['smoke_seconds']:.0f} s at the smoke tier")
    gpus = f"{len(machine['gpus'])} GPUs" if machine["gpus"] else "no GPU"
    torch = machine["versions"]["torch"].partition("+")[0]
    where = f"{machine['cores']} cores, {gpus}, PyTorch {torch}"
    newest = records.newest_gpu_run(name, Path(book) / "records")
    on_gpus = f"verified {max(r['when'] for r in newest['claims'])}" if newest else "not yet run"
    return (
        f"**Running time**: {' and '.join(times)}, verified {run['when']} on {where}; "
        f"gpu tier {on_gpus}."
    )


def with_running_time(text, line):
    """Return a notebook's JSON with its line on the running time replaced.

    Raises:
        ValueError: it has not exactly one.
    """
    found, count = re.subn(r'"\*\*Running time\*\*:[^"\\]*', lambda _: '"' + line, text)
    if count != 1:
        raise ValueError(f"{count} lines begin with **Running time**: in a notebook, give it one")
    return found


def pages(root=toc.ROOT):
    """Return ``{path: text}`` of what is generated in the book at ``root``."""
    book = Path(root) / "book"
    notebooks = toc.chapters(book)
    chapters = [read_chapter(name, path, root) for name, path in notebooks.items()]
    return {
        book / "map.md": map_page(chapters, root),
        book / "status.md": status_page(chapters, book),
    } | {
        Path(path): with_running_time(
            Path(path).read_text(encoding="utf-8"), running_time(name, book)
        )
        for name, path in notebooks.items()
    }


def _where_defined(package, name, root):
    """Return the module that ``from package import name`` takes the name from."""
    folder = Path(root, *package.split("."))
    if (folder / f"{name}.py").exists() or (folder / name / "__init__.py").exists():
        return f"{package}.{name}"
    if (folder / "__init__.py").exists():
        for node in ast.parse((folder / "__init__.py").read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom) and node.module and node.module != package:
                for alias in node.names:
                    if name in (alias.asname, alias.name):
                        return _where_defined(node.module, alias.name, root)
    return package


def _part(module):
    names = module.split(".")
    return len(names) > 1 and names[0] == "lsdl_lib" and names[1] in PARTS


def _run(chapter, book):
    """Return the cells that say when a chapter was run and on what."""
    path = Path(book) / "records" / f"{chapter.name}.run.json"
    if not path.exists():
        return ["not yet run"] + [""] * 4
    run = json.loads(path.read_text(encoding="utf-8"))
    machine, versions = run["machine"], run["machine"]["versions"]
    gpus = [f"{len(machine['gpus'])} x {machine['gpus'][0]}"] if machine["gpus"] else []
    where = [
        f"{machine['system']} {machine['architecture']}",
        f"{machine['cores']} cores",
        *gpus,
        f"Python {versions['python']}",
        f"PyTorch {versions['torch']}",
    ]
    claims = records.read_all(Path(book) / "records").get(chapter.name, {"claims": []})["claims"]
    return [run["tier"], f"{run['seconds']:.0f} s", str(len(claims)), ", ".join(where), run["when"]]


def _on_gpus(chapter, book):
    newest = records.newest_gpu_run(chapter.name, Path(book) / "records")
    if newest is None:
        return "nccl: not yet run"
    last = max(newest["claims"], key=lambda record: (record["when"], record["ranks"] or 1))
    return f"{records.what_ran(last)}, {last['when']}"


def _lines(items):
    return "<br>".join(items)


def _table(headers, rows):
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text, encoding="utf-8")
        print(page.relative_to(toc.ROOT))
