"""Small rules of the commands: order of pages, stable widget ids, docstrings, ports, refusals."""

import socket
import subprocess
import sys
import urllib.request
from threading import Thread

import nbformat
import pytest

from tools import execute, serve, sphinx_book, toc


def test_pages_come_in_the_order_of_the_contents(tmp_path):
    contents = tmp_path / "_toc.yml"
    contents.write_text(
        "root: intro\nparts:\n"
        "- chapters:\n  - file: a\n    sections:\n    - file: a1\n  - file: b\n"
        "- chapters:\n  - file: c\n"
    )
    assert toc.pages(contents) == ["intro", "a", "a1", "b", "c"]


def test_contents_list_every_page_of_the_book():
    files = [*toc.BOOK.rglob("*.md"), *toc.BOOK.rglob("*.ipynb")]
    names = {
        path.relative_to(toc.BOOK).with_suffix("").as_posix()
        for path in files
        if ".ipynb_checkpoints" not in path.parts
    }
    assert names == set(toc.pages())


def test_executed_twice_a_notebook_is_the_same_file(tmp_path):
    notebook = nbformat.v4.new_notebook()
    source = "import ipywidgets as w\na = w.HTML('x')\nb = w.IntSlider()\nw.VBox([a, b])"
    notebook.cells.append(nbformat.v4.new_code_cell(source, id="only"))
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    path = tmp_path / "chapter.ipynb"
    nbformat.write(notebook, path)
    texts = []
    for _ in range(2):
        execute.execute(path, tmp_path / "records")
        texts.append(path.read_text(encoding="utf-8"))
    assert texts[0] == texts[1]
    state = nbformat.read(path, as_version=4).metadata.widgets[execute.STATE]["state"]
    assert "0" * 31 + "1" in state
    assert len(state) >= 3


def test_failing_chapter_is_reported_and_not_stored(tmp_path, capsys):
    notebook = nbformat.v4.new_notebook()
    notebook.cells.append(nbformat.v4.new_code_cell("print('x')\n1 / 0"))
    path = tmp_path / "chapter.ipynb"
    nbformat.write(notebook, path)
    before = path.read_text(encoding="utf-8")
    assert execute.run_chapter("part/chapter", path, tmp_path / "records") is False
    assert "ZeroDivisionError" in capsys.readouterr().out
    assert path.read_text(encoding="utf-8") == before
    assert not (tmp_path / "records" / "part" / "chapter.run.json").exists()


def test_committed_pages_are_refused_at_another_tier(monkeypatch, capsys):
    monkeypatch.setenv("LSDL_TIER", "smoke")
    assert execute.main(["--in-place", "--records", "book/records"]) == 2
    assert "unset LSDL_TIER=smoke" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "escaped"),
    [
        ("(B, channels, *lengths) -> logits", r"(B, channels, \*lengths) -> logits"),
        ("within p eps sum |x|", r"within p eps sum \|x\|"),
        ("takes ``*args`` and *every* rank", "takes ``*args`` and *every* rank"),
        ("see :class:`a_` and p_", r"see :class:`a_` and p\_"),
        ("2 * 3 * 4", r"2 \* 3 \* 4"),
        ("**kwargs: passed on", r"\*\*kwargs: passed on"),
        ("| a table | b |", "| a table | b |"),
        ("snake_case stays", "snake_case stays"),
    ],
)
def test_what_looks_like_markup_in_a_docstring_is_escaped(line, escaped):
    assert sphinx_book.escape(line) == escaped


def test_taken_port_gives_another(tmp_path):
    (tmp_path / "index.html").write_text("the book")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with serve.server(tmp_path, port) as running:
            assert running.server_port != port
            Thread(target=running.serve_forever, daemon=True).start()
            with urllib.request.urlopen(f"http://127.0.0.1:{running.server_port}/") as answer:
                assert answer.read() == b"the book"
                assert answer.headers["Cache-Control"] == "no-cache"
            running.shutdown()


def test_serve_without_a_site_says_what_to_do(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(serve, "SITE", tmp_path)
    assert serve.main() == 1
    assert "make book first" in capsys.readouterr().err


def test_gpu_without_a_gpu_says_why():
    from tools import gpu

    if gpu.why_no_gpu():
        command = [sys.executable, "-m", "tools.gpu", "bundle.json"]
        result = subprocess.run(command, cwd=toc.ROOT, capture_output=True, text=True, check=False)
        assert result.returncode == 1
        assert "needs a GPU" in result.stderr
