"""The built pages in a browser, in light, dark and on a phone: what scrolls, breaks, or cannot be read.

``RMOPT_HTML=FOLDER pytest tests/docs/test_pages.py`` looks at what ``sphinx-build docs FOLDER`` wrote.
"""

import importlib.util
import os
import shutil
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

HTML = os.environ.get("RMOPT_HTML", "")
PAGES = (
    "index",
    "learn/twenty_minutes",
    "learn/low_rank",
    "guide/completion",
    "howto/recommend",
    "measured/results",
    "tutorials/index",
    "tutorials/07_document_similarity",
    "howto/does_not_converge",
    "reference/glossary",
    "reference/messages",
    "api/generated/rmopt.manifolds.Grassmann",
)
FORMULAS = "[...document.querySelectorAll('.math')]"
TYPESET = "window.MathJax && MathJax.startup && MathJax.startup.promise"
# Words that visitors look for, and the page that they mean.
SOUGHT = {
    "GPU": "howto/arrays",
    "complex": "howto/arrays",
    "install": "start/install",
    "callback": "howto/watch",
    "verbose": "howto/watch",
    "plot": "howto/watch",
    "cite": "project/cite",
    "FAQ": "start/faq",
    "converge": "howto/does_not_converge",
    "rank": "howto/choose",
    "Windows": "start/install",
    "csv": "start/own_csv",
    "recommend": "howto/recommend",
}
RULES = ["color-contrast", "image-alt", "link-name", "document-title"]
FORMS = {"light": (1280, "light"), "dark": (1280, "dark"), "phone": (390, "light")}

pytestmark = pytest.mark.skipif(
    not HTML, reason="RMOPT_HTML does not name a folder with the built pages (sphinx-build docs FOLDER)"
)


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Serve the pages."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=HTML)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Open a browser."""
    found = [importlib.util.find_spec(name) for name in ("selenium", "axe_core_python")]
    if None in found or not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip(
            "a browser is not installed; pip install .[docs] and apt install chromium-driver bring one"
        )
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    with webdriver.Chrome(options=options, service=service) as opened:
        yield opened


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_can_be_read(browser: Any, address: str, page: str, form: str) -> None:
    from axe_core_python.selenium import Axe
    from selenium.webdriver.support.ui import WebDriverWait

    width, theme = FORMS[form]
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": form == "phone"}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": theme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    browser.get(f"{address}/{page}.html")
    WebDriverWait(browser, 20).until(
        lambda one: one.execute_script(f"return !{FORMULAS}.length || !!({TYPESET})")
    )
    browser.execute_async_script(f"const done = arguments[0]; Promise.resolve({TYPESET}).then(() => done())")
    if folder := os.environ.get("RMOPT_SHOTS"):
        Path(folder).mkdir(exist_ok=True)
        browser.save_screenshot(f"{folder}/{page.replace('/', '-')}-{form}.png")
    assert browser.execute_script("return document.documentElement.dataset.theme") == theme
    # Nothing is wider than the window.
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    images = "return [...document.images].filter(i => i.complete && !i.naturalWidth && i.src).map(i => i.src)"
    assert browser.execute_script(images) == []
    plain = f"return {FORMULAS}.filter(m => !m.querySelector('mjx-container')).map(m => m.textContent)"
    assert browser.execute_script(plain) == []
    assert browser.execute_script("return document.querySelectorAll('mjx-merror, .mjx-error').length") == 0
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    found = Axe().run(browser, options={"runOnly": RULES})
    assert [(one["id"], node["html"]) for one in found["violations"] for node in one["nodes"]] == []


@pytest.mark.parametrize(("word", "page"), SOUGHT.items())
def test_a_search_leads_to_the_page_meant(browser: Any, address: str, word: str, page: str) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    browser.get(f"{address}/search.html?q={word}")
    first = "return (document.querySelector('ul.search li a') || {}).href"
    found = WebDriverWait(browser, 20).until(lambda one: one.execute_script(first))
    assert found.partition(".html")[0] == f"{address}/{page}"
