"""The built files: links, anchors and downloads resolve, nothing comes from elsewhere, sizes."""

import re
from functools import cache
from urllib.parse import unquote, urlsplit

import pytest
from bs4 import BeautifulSoup

from tests.site.conftest import PAGES
from tools import toc

MAX_PAGE_BYTES = 1_500_000  # the page and its pictures; scripts and styles are shared by all pages
LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}


@cache
def parsed(path):
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


def anchors(path):
    return {tag["id"] for tag in parsed(path).find_all(id=True)}


def target(page, link):
    """Return the file that a relative link on ``page`` points to."""
    parts = urlsplit(link)
    return (page.parent / unquote(parts.path)).resolve() if parts.path else page


def resolves(page, link):
    """Tell whether a relative link leads to a file of the site, and to an anchor that is in it."""
    file, anchor = target(page, link), unquote(urlsplit(link).fragment)
    if urlsplit(link).scheme or not file.is_file():
        return False
    return not anchor or file.suffix != ".html" or anchor in anchors(file)


@pytest.mark.parametrize("name", PAGES)
def test_links_and_downloads_resolve(site, name):
    page = site / f"{name}.html"
    broken = []
    for tag in parsed(page).find_all("a", href=True):
        link = tag["href"]
        if urlsplit(link).scheme not in ("https", "mailto") and not resolves(page, link):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("name", PAGES)
def test_everything_that_a_page_loads_is_in_the_site(site, name):
    page = site / f"{name}.html"
    for tag_name, attribute in LOADED.items():
        for tag in parsed(page).find_all(tag_name, attrs={attribute: True}):
            link = tag[attribute]
            if not link.startswith("data:"):
                assert not urlsplit(link).scheme, link
                assert target(page, link).is_file(), link
    assert not re.search(r"""(?:url\(|@import\s+)["']?https?:""", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", PAGES)
def test_page_is_small(site, name):
    page = site / f"{name}.html"
    pictures = {target(page, tag["src"]) for tag in parsed(page).find_all("img", src=True)}
    size = sum(path.stat().st_size for path in {page, *pictures})
    assert size <= MAX_PAGE_BYTES, f"{size / 1e6:.1f} MB"


@pytest.mark.parametrize("name", PAGES)
def test_only_pages_with_widgets_load_the_widget_script(site, name):
    page = parsed(site / f"{name}.html")
    views = page.find_all("script", type="application/vnd.jupyter.widget-view+json")
    scripts = [tag for tag in page.find_all("script", src=True) if "embed" in tag["src"]]
    assert len(scripts) == (1 if views else 0)


def test_no_page_carries_what_needs_a_server(site):
    for name in PAGES:
        text = (site / f"{name}.html").read_text(encoding="utf-8")
        assert not re.search(r"(?i)thebe|binder|colab\.research|requirejs", text), name


def test_every_chapter_can_be_downloaded(site):
    for name in toc.chapters():
        links = [tag["href"] for tag in parsed(site / f"{name}.html").find_all("a", href=True)]
        assert any(link.endswith(f"_sources/{name}.ipynb") for link in links), name
