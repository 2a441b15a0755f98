"""The error reference in a real browser: search, open, follow, copy, dark and light, a phone.

The files are opened from the disk as well as from the server. No browser is a failure: CI installs one (Debian's
packages ``chromium`` and ``chromium-driver``).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from sizewise.reference.site.build import build_site
from sizewise.reference.site.catalogue import Catalogue
from sizewise.reference.site.find import find
from sizewise.reference.titles import title_of

from .site_support import CAPTURING, HOSTILE, MADE, fill, our_entries, running

pytestmark = pytest.mark.slow

SECONDS = 20
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
PHONE = 360


def found_program(*names: str) -> str:
    """The path of the first of these programs. Fails the test where there is none."""
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        pytest.fail(f"none of {', '.join(names)} is installed: apt-get install chromium chromium-driver")
    return found


class Window:
    """A browser window, and what a person does with it."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def one(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def wait(self, condition: Any) -> Any:
        return WebDriverWait(self.driver, SECONDS).until(condition)

    def run(self, script: str, *values: Any) -> Any:
        return self.driver.execute_script(script, *values)

    def follow(self, link: WebElement) -> None:
        before = self.driver.current_url
        link.click()
        self.wait(lambda driver: driver.current_url != before and self.run("return document.readyState") == "complete")

    def resize(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("browser")
    fill(place / "errors.sqlite", place / "root")
    build_site(Catalogue(place / "errors.sqlite", our_entries()), place / "site", MADE)
    return place


@pytest.fixture(scope="module", params=["files", "server"])
def home(request: pytest.FixtureRequest, site: Path) -> Iterator[str]:
    if request.param == "files":
        yield (site / "site" / "index.html").as_uri()
    else:
        with running(site / "errors.sqlite") as client:
            yield f"http://127.0.0.1:{client.port}/"


@pytest.fixture(scope="module")
def browser() -> Iterator[Window]:
    options = webdriver.ChromeOptions()
    options.binary_location = found_program(*BROWSERS)
    # Containers run as root and have a small /dev/shm.
    for option in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(found_program("chromedriver")))
    try:
        yield Window(driver)
    finally:
        driver.quit()


@pytest.fixture
def window(browser: Window, home: str) -> Window:
    browser.resize(1000, 900)
    browser.prefer("light")
    browser.driver.get(home)
    return browser


def search(window: Window, query: str) -> list[str]:
    box = window.one("#query")
    box.clear()
    box.send_keys(query)
    return [item.text for item in window.all("#results li")]


def test_search_as_one_types_open_follow_and_copy(window: Window) -> None:
    assert window.one("#own").is_displayed() and not window.all("#results li")
    found = search(window, "inappropriate capturing")
    assert len(found) == 2 and "SW601, CapturingDisabled" in found[0] and "2 found" in window.one("#count").text
    assert not window.one("#own").is_displayed()
    window.follow(window.one("#results a"))
    assert window.one("h1").text == f"SW601: {title_of(CAPTURING)}" and "sizewise · error" in window.one(".kind").text
    copy_and_check(window, "sizewise explain SW601")
    title = window.one("#related + ul a").text
    window.follow(window.one("#related + ul a"))
    assert window.one("h1").text.endswith(f": {title}") and window.one("#message")
    window.follow(window.one("header nav a"))
    assert window.one("#query").is_displayed()
    assert window.complaints() == []


def copy_and_check(window: Window, command: str) -> None:
    button = window.one("button[data-copies]")
    assert button.is_displayed() and button.accessible_name == "Copy the command"
    button.click()
    window.wait(lambda _: window.one("#copied").text == "Copied")
    # What the clipboard holds is what a paste gives.
    window.run("const box = document.createElement('textarea'); box.id = 'paste'; document.body.append(box)")
    window.one("#paste").send_keys(Keys.CONTROL, "v")
    assert window.one("#paste").get_property("value") == command


def test_the_browser_finds_what_the_server_finds(window: Window, site: Path) -> None:
    faces = Catalogue(site / "errors.sqlite", our_entries()).faces
    for query in (
        "sw401",
        "capturing",
        "vllm",
        "Sizewise compile",
        "cudagraph sizes",
        CAPTURING,
        "qqq zzz",
        "x",
        "qqq capturing",
    ):
        found = find(faces, query)
        search(window, query)
        links = [str(link.get_attribute("href")) for link in window.all("#results a")]
        assert len(links) == min(len(found), 50), query
        assert all(face.id in link for face, link in zip(found, links, strict=False)), query


def test_keys_alone_are_enough(window: Window) -> None:
    body = window.one("body")
    body.send_keys(Keys.TAB)
    assert window.driver.switch_to.active_element.text == "Skip to the content"
    window.driver.switch_to.active_element.send_keys(Keys.TAB)
    window.driver.switch_to.active_element.send_keys(Keys.TAB)
    box = window.driver.switch_to.active_element
    assert box.get_attribute("id") == "query" and box.accessible_name.startswith("Search by code")
    assert window.run("return getComputedStyle(arguments[0]).outlineStyle", box) == "solid"
    box.send_keys("SW401", Keys.TAB)
    link = window.driver.switch_to.active_element
    assert link.tag_name == "a" and window.run("return getComputedStyle(arguments[0]).outlineWidth", link) == "3px"
    link.send_keys(Keys.ENTER)
    window.wait(lambda _: "SW401" in window.driver.title)


def test_dark_and_light_follow_the_system(window: Window) -> None:
    window.follow(window.one("#own a"))
    shades = {}
    for scheme in ("light", "dark"):
        window.prefer(scheme)
        style = "const style = getComputedStyle(document.body); return [style.backgroundColor, style.color]"
        shades[scheme] = window.run(style)
    assert shades == {
        "light": ["rgb(255, 255, 255)", "rgb(26, 29, 33)"],
        "dark": ["rgb(20, 23, 27)", "rgb(232, 234, 237)"],
    }


def test_a_phone_needs_no_sideways_scrolling(window: Window, site: Path, home: str) -> None:
    window.resize(PHONE, 740)
    faces = Catalogue(site / "errors.sqlite", our_entries()).faces
    end = "/index.html" if home.startswith("file:") else ""
    top = home.removesuffix("index.html")
    pages = [home, f"{top}report{end}", *(f"{top}errors/{face.id}{end}" for face in faces)]
    for page in pages:
        window.driver.get(page)
        assert window.run("return document.documentElement.scrollWidth") <= PHONE, page
        assert window.run("return innerWidth") == PHONE, page
    window.driver.get(home)
    search(window, "size")
    assert window.run("return document.documentElement.scrollWidth") <= PHONE
    heights = [box.size["height"] for box in (window.one("#query"), window.one("#results a"))]
    assert all(height >= 24 for height in heights)


def test_what_is_shown_is_text(window: Window) -> None:
    assert any(HOSTILE[:40] in text for text in search(window, "alert(1)"))
    window.follow(window.one("#results a"))
    assert HOSTILE in window.one("#message + pre").text
    assert not window.all("main script") and window.complaints() == []
