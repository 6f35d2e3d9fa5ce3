"""Rules that hold for the whole tree: devices, sizes, units, pins, imports."""

import ast
import importlib.metadata
import re
import tomllib
from pathlib import Path

import nbformat
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import toc

ROOT = toc.ROOT
CODE = sorted(
    path
    for folder in ("lsdl_lib", "tools", "benchmarks", "tests")
    for path in (ROOT / folder).rglob("*.py")
)
CHAPTERS = toc.chapters()
NAMES_DEVICES = (
    "lsdl_lib/launch/",
    "lsdl_lib/measure/",
    "tests/launch/",
    "tests/measure/",
    "tests/test_tree.py",
)
MAX_LINES, MAX_CELL_LINES, MAX_CELL_COLUMNS = 300, 25, 88
MAX_IGNORED = 0.2  # share of a chapter's code cells whose output nbval does not compare
WRONG_UNIT = r"\b\d[\d.,]*\s?(?:KB|Kb|Mb|Gb|Tb|[KMG]bps|[KMG]Bps|[KMG]ib)\b"


def read(path):
    return path.read_text(encoding="utf-8")


def short(path):
    return path.relative_to(ROOT).as_posix()


def device_literals(source):
    """Return the string literals that name a device, with their lines; docstrings are prose."""
    tree = ast.parse(source)
    prose = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return [
        (node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in prose
        and re.fullmatch(r"(?:cpu|cuda)(?::\d*)?", node.value)
    ]


def code_cells(path):
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def without_magics(source):
    return re.sub(r"^[ \t]*[%!].*$", "pass", source, flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("x.to('cpu')", ["cpu"]),
        ("f'cuda:{rank}'", ["cuda:"]),
        ("torch.device('cuda:0')", ["cuda:0"]),
        ("if device.type == 'cuda': pass", ["cuda"]),
        ("def f():\n    'cpu'", []),
        ("print('on the cpu or cuda')  # cpu", []),
        ("device('cpus')", []),
    ],
)
def test_device_literals_are_found(source, found):
    assert [value for _, value in device_literals(source)] == found


@pytest.mark.parametrize("path", CODE, ids=short)
def test_devices_are_named_only_where_they_are_chosen(path):
    if not short(path).startswith(NAMES_DEVICES):
        assert device_literals(read(path)) == [], "use lsdl_lib.launch.device() or an argument"


@pytest.mark.parametrize("name", CHAPTERS)
def test_chapters_name_no_device(name):
    for cell in code_cells(CHAPTERS[name]):
        assert device_literals(without_magics(cell.source)) == []


@pytest.mark.parametrize("path", [p for p in CODE if not short(p).startswith("tests/")], ids=short)
def test_modules_are_short(path):
    lines = read(path).count("\n")
    assert lines <= MAX_LINES, f"{lines} lines: one idea a file"


@pytest.mark.parametrize("name", CHAPTERS)
def test_code_cells_fit_the_page(name):
    for cell in code_cells(CHAPTERS[name]):
        lines = cell.source.splitlines()
        assert len(lines) <= MAX_CELL_LINES, f"{len(lines)} lines:\n{cell.source}"
        longest = max(lines, key=len, default="")
        assert len(longest) <= MAX_CELL_COLUMNS, f"{len(longest)} columns: {longest}"


@pytest.mark.parametrize("name", CHAPTERS)
def test_most_outputs_are_compared(name):
    cells = code_cells(CHAPTERS[name])
    tags = [tag for cell in cells for tag in cell.metadata.get("tags", [])]
    ignored = tags.count("nbval-ignore-output")
    assert ignored <= max(1, MAX_IGNORED * len(cells))
    assert "nbval-skip" not in tags
    assert not re.search(r"#\s*(?:NBVAL|PYTEST_VALIDATE)", "".join(cell.source for cell in cells))


PROSE = [*sorted(toc.BOOK.rglob("*.md")), *sorted(ROOT.glob("*.md")), *CHAPTERS.values()]


@pytest.mark.parametrize("path", [*PROSE, *CODE], ids=short)
def test_units_are_written_one_way(path):
    if path != Path(__file__):
        found = re.findall(WRONG_UNIT, read(path))
        assert found == [], "KiB, MiB, GiB for capacities; kB, MB, GB, Gbit/s for traffic"


@pytest.mark.parametrize("text", ["5 KB", "10 Gbps", "3.5Mb", "1 Gib"])
def test_wrong_units_are_found(text):
    assert re.search(WRONG_UNIT, text)


@pytest.mark.parametrize("text", ["5 kB", "10 Gbit/s", "3.5 MB", "1 GiB", "2 MiB", "25 GB/s"])
def test_right_units_are_not(text):
    assert not re.search(WRONG_UNIT, text)


def pins(name):
    """Return ``{package: version}`` of the lines ``package==version``; other lines are an error."""
    found = {}
    for line in read(ROOT / name).splitlines():
        line = line.partition("#")[0].strip()
        if line and not line.startswith("-c "):
            match = re.fullmatch(r"([\w.-]+)==([\w.]+)", line)
            assert match, f"{name}: {line!r} is no exact pin"
            found[canonicalize_name(match[1])] = match[2]
    return found


def requirements_of(package):
    """Return the names of the packages that an installed package needs here."""
    for text in importlib.metadata.requires(package) or []:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield canonicalize_name(requirement.name), requirement.extras


def test_everything_that_is_installed_is_pinned():
    direct, pulled_in = pins("requirements.txt"), pins("constraints.txt")
    assert not set(direct) & set(pulled_in), "pinned in both files"
    needed, todo = set(), [*direct]
    while todo:
        package = todo.pop()
        if package in needed:
            continue
        needed.add(package)
        if package != "torch":  # its CUDA build pins what only it needs
            todo += [name for name, _ in requirements_of(package)]
    missing = {name: importlib.metadata.version(name) for name in needed - {*direct, *pulled_in}}
    assert not missing, f"add to constraints.txt: {missing}"
    assert {"pip", "setuptools"} <= set(pulled_in)


def test_what_is_installed_is_what_is_pinned():
    for package, version in pins("requirements.txt").items():
        installed = importlib.metadata.version(package).partition("+")[0]
        assert installed == version, f"{package}: run make book"


def test_the_library_s_ranges_allow_the_tested_versions():
    project = tomllib.loads(read(ROOT / "pyproject.toml"))["project"]
    tested = {**pins("requirements.txt"), **pins("constraints.txt")}
    for text in project["dependencies"]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(tested[canonicalize_name(requirement.name)]), text


def test_import_contract_names_every_part():
    contracts = tomllib.loads(read(ROOT / "pyproject.toml"))["tool"]["importlinter"]["contracts"]
    layers = set(re.findall(r"\w+", " ".join(contracts[0]["layers"])))
    parts = {path.parent.name for path in (ROOT / "lsdl_lib").glob("*/__init__.py")}
    assert parts <= layers
    forbidden = {name.removeprefix("lsdl_lib.") for name in contracts[1]["source_modules"]}
    assert parts - {"show"} <= forbidden, "only show and chapters may import show"


def test_every_test_folder_belongs_to_a_package():
    packages = {path.parent.name for path in (ROOT / "lsdl_lib").glob("*/__init__.py")}
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/test_*.py")}
    assert folders - {"site", "tools"} <= packages
