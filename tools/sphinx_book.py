"""The book's own Sphinx extension: docstrings as prose, and widgets beside formulas.

Docstrings in ``lsdl_lib`` are plain text with formulas. Sphinx reads them as reStructuredText,
where ``(B, C, *lengths)``, ``|g|`` and ``p_`` are markup. This escapes such characters outside of
literals before the page ``api`` is made from them.

Widgets call MathJax 2 to typeset their labels, pages carry MathJax 3. On pages with widgets a short
script answers that call, which would otherwise be an error that stops a widget from being drawn.
"""

import re

from myst_nb.sphinx_ import NbMetadataCollector

LITERAL = re.compile(r"(``.+?``|:[\w:]+:`[^`]+`|`[^`]+`_{0,2})")
EMPHASIS = re.compile(r"(?<![\w*])(\*\*?)(?=\S)[^*]+?(?<=\S)\1(?![\w*])")
SPECIAL = re.compile(r"[*|]|(?<=\w)_(?!\w)")

TYPESET = """\
if (window.MathJax) {
  const typeset = (element) => MathJax.typesetPromise && MathJax.typesetPromise([element]);
  const Hub = {Queue: ([, , element]) => typeset(element)};
  const ready = () => { MathJax.startup.defaultReady(); MathJax.Hub = Hub; };
  Object.assign(MathJax, {Hub, startup: {...MathJax.startup, ready}});
}"""


def escape(line):
    """Return a line of a docstring with what only looks like markup escaped.

    Literals, roles, links and ``*emphasis*`` stay; so do the bars of a line block or a table.
    """
    if re.match(r"\s*[|+]", line):
        return line
    parts = LITERAL.split(line)
    return "".join(part if index % 2 else _escape_text(part) for index, part in enumerate(parts))


def _escape_text(text):
    result, start = [], 0
    for match in EMPHASIS.finditer(text):
        result += [SPECIAL.sub(r"\\\g<0>", text[start : match.start()]), match.group()]
        start = match.end()
    return "".join(result) + SPECIAL.sub(r"\\\g<0>", text[start:])


def has_widgets(app, page):
    """Tell whether a page holds widgets, that is, a notebook with the state of some."""
    return page in app.env.nb_metadata and bool(NbMetadataCollector.get_js_files(app.env, page))


def _add_typeset(app, page, template, context, doctree):
    if doctree is not None and has_widgets(app, page):
        app.add_js_file(None, body=TYPESET, priority=600)  # after Sphinx's inline MathJax settings


def _process(app, what, name, obj, options, lines):
    if what in ("attribute", "property", "data"):
        lines.insert(0, "")  # napoleon takes "One rank: its number" for a type and a description
    literal_indent = None  # of the paragraph that ended in "::"
    for index, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if literal_indent is not None and line.strip() and indent <= literal_indent:
            literal_indent = None
        if literal_indent is None:
            lines[index] = escape(line)
            if line.rstrip().endswith("::"):
                literal_indent = indent


def setup(app):
    """Register with Sphinx."""
    app.connect("autodoc-process-docstring", _process, priority=100)  # before napoleon's 500
    app.connect("html-page-context", _add_typeset)
    app.add_config_value("comments_config", {}, "")  # set by Jupyter Book for what is not used here
    return {"parallel_read_safe": True, "parallel_write_safe": True}
