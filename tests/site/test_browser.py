"""Every page in a real browser, network off: no error, light, dark, phone, pictures named."""

import pytest

from tests.site.conftest import PAGES
from tools import toc

pytestmark = pytest.mark.browser

# Text as it is drawn: its color against the first ancestor that has a background of its own.
CONTRAST = """() => {
  const SKIPPED = "script, style, svg, mjx-container, .headerlink, .search-button__kbd-shortcut";
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const linear = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const over = (top, below) => {
    const a = top.length > 3 ? top[3] : 1;
    return [0, 1, 2].map((i) => top[i] * a + below[i] * (1 - a));
  };
  const ground = (element) => {
    if (!element) return [255, 255, 255];
    const own = parse(getComputedStyle(element).backgroundColor);
    const opaque = own.length === 3 || own[3] === 1;
    return opaque ? own : over(own, ground(element.parentElement));
  };
  const poor = new Map();
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.textContent.trim();
    if (!text || element.closest(SKIPPED)) continue;
    if (!element.checkVisibility({opacityProperty: true})) continue;
    const below = ground(element);
    const lights = [light(over(parse(getComputedStyle(element).color), below)), light(below)];
    const ratio = (Math.max(...lights) + 0.05) / (Math.min(...lights) + 0.05);
    const size = parseFloat(getComputedStyle(element).fontSize);
    const where = `${element.tagName}.${element.className}`;
    if (ratio < (size >= 24 ? 3 : 4.5)) poor.set(where, `${ratio.toFixed(1)} ${text.slice(0, 40)}`);
  }
  return [...poor].map(([where, what]) => `${where}: ${what}`);
}"""

UNNAMED = """() => [...document.querySelectorAll("main img, main svg")].filter((e) => {
  if (e.closest("button, [aria-hidden=true]")) return false;
  if (e.tagName === "IMG") return !e.alt.trim();
  const name = ["aria-label", "aria-labelledby"].some((key) => e.getAttribute(key));
  return e.getAttribute("role") !== "img" || !(name || e.querySelector("title"));
}).map((e) => e.outerHTML.slice(0, 200))"""


@pytest.mark.parametrize("name", PAGES)
def test_page_is_readable_in_light_and_dark(visit, name):
    page = visit(name, color_scheme="light")
    assert page.problems == []
    assert name == "search" or page.locator("article h1").first.is_visible()
    assert page.evaluate(UNNAMED) == [], "pictures without a text alternative"
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_function(f"document.documentElement.dataset.theme === '{scheme}'")
        page.wait_for_timeout(300)  # colors change in transitions
        assert page.evaluate(CONTRAST) == [], f"text with too little contrast in {scheme}"


@pytest.mark.parametrize("name", PAGES)
def test_page_fits_a_phone(visit, name):
    page = visit(name, viewport={"width": 400, "height": 800})
    assert page.problems == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


@pytest.mark.parametrize("name", ["notation", *toc.chapters()])
def test_page_works_when_its_file_is_opened(visit, name):
    page = visit(name, files=True)
    assert page.problems == []
    assert page.locator("mjx-container").count() >= page.locator(".math").count() > 0


def test_start_page_leads_to_the_introduction(visit, address):
    page = visit("notation")
    page.goto(address)
    page.wait_for_url("**/intro.html")
    assert page.problems == []


def test_code_of_88_columns_fits_beside_both_sidebars(visit):
    page = visit("intro", viewport={"width": 1280, "height": 800})
    shown = page.evaluate("""() => {
      const code = document.querySelector("article pre");
      code.textContent = "x".repeat(88);
      return [code.scrollWidth, code.clientWidth];
    }""")
    assert shown[0] <= shown[1]


def test_search_finds_a_term(visit):
    page = visit("search")
    page.goto(page.url + "?q=latency")
    page.wait_for_selector("#search-results li", timeout=20_000)
    assert page.problems == []
    assert "glossary" in page.locator("#search-results").inner_html()
