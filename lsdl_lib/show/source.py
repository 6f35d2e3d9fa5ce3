"""Show the library's own source on a page: the code that is read is the code that runs."""

import ast
import html
import inspect
import textwrap
from pathlib import Path

import lsdl_lib
from lsdl_lib.show.style import PAGE

PACKAGE = Path(lsdl_lib.__file__).parent

# The book's theme has its own colors for these classes. These are for JupyterLab: each has a
# contrast of at least 4.5 with its background.
LOOK = (
    ".lsdl-source{margin:0;--k:#7b3fb5;--s:#0a6640;--c:#5f6a72;--n:#0550ae;--m:#953800}"
    "html[data-theme=dark] .lsdl-source,body[data-jp-theme-light=false] .lsdl-source"
    "{--k:#c792ea;--s:#9fd8a5;--c:#9aa5ad;--n:#79b8ff;--m:#ffb77c}"
    ".lsdl-source figcaption{font-size:.85em;font-weight:normal;color:inherit;"
    "text-align:left;margin:0 0 .2em}"
    ".lsdl-source div.highlight pre{white-space:pre;overflow-x:auto;margin:0;padding:.6em;"
    "border:1px solid #7f7f7f80;border-radius:4px}"
    + "".join(
        ",".join(f".lsdl-source .{token}" for token in tokens.split()) + f"{{color:var(--{color})}}"
        for tokens, color in [
            ("k kn kc kd ow", "k"),
            ("s s1 s2 sa sd si", "s"),
            ("c c1", "c"),
            ("nf nc nb nd fm", "n"),
            ("mi mf mh", "m"),
        ]
    )
)


class Source:
    """Lines of one file of the library: highlighted on a page, plain in a terminal."""

    def __init__(self, code, path, first, last, without_docstrings):
        self.code = code
        self.caption = f"{path}, lines {first}-{last}" + (
            ", docstrings left out" if without_docstrings else ""
        )

    def _repr_html_(self):
        caption = html.escape(self.caption)
        # tabindex: a long line makes the block scroll, and the keyboard must be able to.
        return (
            f'<style>{PAGE}{LOOK}</style><figure class="lsdl lsdl-source">'
            f'<figcaption>{caption}</figcaption><div class="highlight">'
            f'<pre tabindex="0" aria-label="{caption}">{_highlighted(self.code)}</pre>'
            "</div></figure>"
        )

    def __repr__(self):
        return f"# {self.caption}\n{self.code}"


def source(obj, start=None, stop=None, *, docstrings=True):
    """Show the source of a function, class, method or module of the library.

    ``show.source(ring.all_reduce)``, or a part of it:
    ``show.source(ring.all_reduce, start="for step in", stop="return")``.

    Args:
        obj: the object. Its file and lines stand above the code, relative to the repository.
        start: a piece of the first line to show. Text, for line numbers move.
        stop: a piece of the last line to show, at or below the first.
        docstrings: False leaves docstrings out.

    Raises:
        ValueError: obj is not of the library, or no line holds ``start`` or ``stop``.
    """
    obj = inspect.unwrap(obj) if callable(obj) else obj
    try:
        file = Path(inspect.getsourcefile(obj))
        lines, first = inspect.getsourcelines(obj)
    except (TypeError, OSError):
        raise ValueError(f"{obj!r} has no Python source") from None
    if not file.resolve().is_relative_to(PACKAGE.resolve()):
        raise ValueError(f"{obj!r} is defined in {file}: only the library's own source is shown")
    path = (Path(PACKAGE.name) / file.resolve().relative_to(PACKAGE.resolve())).as_posix()
    first = max(first, 1)  # a module's is 0
    lines = textwrap.dedent("".join(lines)).rstrip().split("\n")
    begin = 0 if start is None else _find(lines, start, 0, path)
    end = len(lines) - 1 if stop is None else _find(lines, stop, begin, path)
    hidden = set() if docstrings else _docstring_lines(lines)
    shown = [line for i, line in enumerate(lines) if begin <= i <= end and i not in hidden]
    cut = any(begin <= i <= end for i in hidden)
    code = textwrap.dedent("\n".join(shown)) + "\n"
    return Source(code, path, first + begin, first + end, cut)


def _find(lines, piece, begin, path):
    if not isinstance(piece, str) or not piece:
        raise ValueError(f"{piece!r}: give a piece of the line's text")
    for i in range(begin, len(lines)):
        if piece in lines[i]:
            return i
    raise ValueError(f"no line of {path} in what is shown holds {piece!r}")


def _docstring_lines(lines):
    hidden = set()
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if ast.get_docstring(node, clean=False) is not None and len(node.body) > 1:
                # With the empty lines below it.
                hidden |= set(range(first.lineno - 1, node.body[1].lineno - 1)) & {
                    i for i, line in enumerate(lines) if i < first.end_lineno or not line.strip()
                }
    return hidden


def _highlighted(code):
    from pygments import highlight  # slow to import, and only a page needs it
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    return highlight(code, PythonLexer(), HtmlFormatter(nowrap=True)).rstrip("\n")
