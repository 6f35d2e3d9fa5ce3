"""The built site, served on localhost, and a browser that may talk to nothing else."""

import threading

import pytest

from tools import toc
from tools.browser import OPTIONS, chromium
from tools.build import SITE
from tools.serve import server as make_server

PAGES = [*toc.pages(), "genindex", "search"]
# Formulas and widgets are drawn after the page is loaded.
DRAWN = """async () => {
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)));
  if (window.MathJax && MathJax.startup) await MathJax.startup.promise;
  const views = 'script[type="application/vnd.jupyter.widget-view+json"]';
  const deadline = Date.now() + 20000;
  while (document.querySelector(views) && !document.querySelector(".jupyter-widgets")) {
    if (Date.now() > deadline) throw new Error("the widgets are not drawn");
    await new Promise((done) => setTimeout(done, 50));
  }
}"""


@pytest.fixture(scope="session")
def site():
    """The folder of the built site."""
    assert (SITE / "index.html").exists(), "there is no built site: run make book"
    return SITE


# Package: Playwright keeps an event loop running, which tests of other folders would stumble over.
@pytest.fixture(scope="package")
def address(site):
    """The address of the site on a local server, with a slash at the end."""
    with make_server(site, port=0) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://localhost:{running.server_port}/"
        running.shutdown()


@pytest.fixture(scope="package")
def browser():
    """The system's Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium(), args=OPTIONS)
        yield running
        running.close()


@pytest.fixture
def visit(browser, address, site):
    """``visit(page, files=False, **context)``: open a page; ``.problems`` lists what went wrong.

    Requests to anything but the site itself are stopped and are problems, as are errors of scripts,
    errors on the console and files that are not there. ``files=True`` opens the file itself.
    """
    contexts = []

    def open_page(name, files=False, **options):
        root = f"file://{site}/" if files else address
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.problems = []

        def allow_only_the_site(route):
            if route.request.url.startswith(root):
                route.continue_()
            else:
                page.problems.append(f"asks for {route.request.url}")
                route.abort()

        context.route("**/*", allow_only_the_site)
        page.on("pageerror", lambda error: page.problems.append(f"script error: {error}"))

        def note_console(said):
            if said.type == "error":
                page.problems.append(said.text)

        def note_missing(response):
            if response.status >= 400:
                page.problems.append(f"{response.status} {response.url}")

        page.on("console", note_console)
        page.on("response", note_missing)
        page.goto(f"{root}{name}.html")
        page.evaluate(DRAWN)
        return page

    yield open_page
    for context in contexts:
        context.close()
