"""What the prose pages tell a reader to type exists, and their examples give what they show."""

import re

import pytest

from tools import toc

PAGES = sorted([*toc.BOOK.glob("*.md"), *toc.ROOT.glob("*.md")])
TEXT = {path.name: path.read_text(encoding="utf-8") for path in PAGES}
BRITISH = (
    r"(?i)(?:neighb|behavi|col|fav|lab)our|licence|centre|labelled|modelling|catalogue"
    r"|(?:optim|synchron|normal|initial|quant|serial|general|organ|util|real|summar)is(?:e|ing|ation)"
)


def code_blocks(text, language):
    """Return (position, content) of the fenced blocks in ``language``."""
    found = re.finditer(rf"^```{language}\n(.*?)^```$", text, flags=re.M | re.S)
    return [(match.start(), match[1]) for match in found]


@pytest.mark.parametrize("name", TEXT)
def test_make_targets_exist(name):
    makefile = (toc.ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.M))
    named = set(re.findall(r"(?:`|^|=\S+ |> )make ([a-z-]+)", TEXT[name], flags=re.M))
    assert named <= targets


@pytest.mark.parametrize("name", TEXT)
def test_named_files_exist(name):
    folders = "book|lsdl_lib|tests|tools|benchmarks|\\.ci|\\.github"
    named = set(re.findall(rf"(?<![\w./-])((?:{folders})/[\w./-]*[\w/])", TEXT[name]))
    missing = [path for path in sorted(named) if not (toc.ROOT / path).exists()]
    assert not missing


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_links_between_files_resolve(name):
    links = re.findall(r"\]\(([^)#:]+)\)", TEXT[name])
    assert all((toc.ROOT / link).exists() for link in links), links


@pytest.mark.parametrize("name", TEXT)
def test_spelling_is_american(name):
    assert re.findall(BRITISH, TEXT[name]) == []


def test_environment_variables_of_the_book_are_read_somewhere():
    code = "".join(p.read_text(encoding="utf-8") for p in (toc.ROOT / "lsdl_lib").rglob("*.py"))
    named = {word for text in TEXT.values() for word in re.findall(r"\bLSDL_[A-Z_]+\b", text)}
    assert named == {word for word in named if f'"{word}"' in code}


def test_examples_of_the_running_page_print_what_it_shows(capsys):
    text = TEXT["running.md"]
    start, end = text.index("(running-launch)="), text.index("### Timeouts")
    section = text[start:end]
    printed = [content for _, content in code_blocks(section, "text")]
    namespace = {}
    shown = []
    for _, code in code_blocks(section, "python"):
        exec(compile(code, "running.md", "exec"), namespace)
        shown.append(capsys.readouterr().out)
    assert shown == printed
    assert len(shown) == 2


def test_bibliography_entries_are_complete():
    text = (toc.BOOK / "references.bib").read_text(encoding="utf-8")
    entries = re.findall(r"^@(\w+)\{([^,]+),\n(.*?)^\}$", text, flags=re.M | re.S)
    keys = [key for _, key, _ in entries]
    assert len(keys) == len(set(keys)) == len(re.findall(r"^@", text, flags=re.M))
    for kind, key, body in entries:
        fields = dict(re.findall(r"^  (\w+)\s*= \{(.*)\},$", body, flags=re.M))
        assert {"author", "title", "year"} <= set(fields), key
        where = {"misc": "eprint", "article": "journal", "techreport": "institution"}
        assert where.get(kind, "booktitle") in fields, key
        family = re.sub(r"[^a-z]", "", fields["author"].split(",")[0].lower())
        assert key.startswith(family + fields["year"]), key
        if "eprint" in fields:
            assert re.fullmatch(r"\d{4}\.\d{4,5}", fields["eprint"]), key


def test_glossary_terms_are_defined_once_and_briefly():
    block = code_blocks(TEXT["glossary.md"], r"\{glossary\}")[0][1]
    entries = re.findall(r"^(\S.*)\n((?:  .*\n)+)", block.partition("\n\n")[2], flags=re.M)
    terms = [term.lower() for term, _ in entries]
    assert len(terms) == len(set(terms)) >= 60
    for term, meaning in entries:
        assert len(re.findall(r"\.(?:\s|$)", meaning)) <= 4, f"{term}: at most a few sentences"
