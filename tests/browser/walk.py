"""The walk itself: login, approval by keyboard, call page, skill, journal verify; with scripts and without.

Started by `python -m tests.browser` with the interpreter that has selenium; what it must know comes as JSON on stdin.
Every page is photographed in light and dark, and at a telephone's width. Any console message of the browser (a refused
script, a broken policy) fails the walk: hostile output in these pages must not even be tried.
"""

from __future__ import annotations

import base64
import json
import shutil
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver  # type: ignore[import-not-found]
from selenium.webdriver.common.by import By  # type: ignore[import-not-found]
from selenium.webdriver.common.keys import Keys  # type: ignore[import-not-found]
from selenium.webdriver.support.ui import WebDriverWait  # type: ignore[import-not-found]

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --window-size=1360,900"
).split()
PATIENCE_S = 20
SCHEMES = ("light", "dark")
NARROW = 400
PLOTS = """return [...document.querySelectorAll(".drawn")].flatMap((drawn) => {
  const seen = [...drawn.querySelectorAll(".plot")].filter((plot) => plot.getBoundingClientRect().width > 0);
  if (seen.length !== 1) return [`${seen.length} drawings of one plot are shown`];
  const right = drawn.getBoundingClientRect().right + 1;
  return [...seen[0].querySelectorAll("text")].flatMap((text) => {
    const box = text.getBoundingClientRect();
    if (box.right > right) return [`"${text.textContent}" of a plot is cut off`];
    return box.height < 9 ? [`"${text.textContent}" of a plot is ${box.height} px high`] : [];
  });
})"""
"""What cannot be read of the plots."""
AXE = """const done = arguments[arguments.length - 1];
axe.run({resultTypes: ["violations"]}).then(
  (found) => done(found.violations.map((one) => `${one.id} x${one.nodes.length}: ${one.nodes[0].html.slice(0, 200)}`)),
  (error) => done([String(error)]))"""


class Walk:
    def __init__(self, known: dict[str, Any], shots: Path) -> None:
        self.known = known
        self.shots = shots
        self.url: str = known["url"]
        self.failures: list[str] = []
        axe = Path(sys.prefix, "node_modules", "axe-core", "axe.min.js")
        self.rules = axe.read_text(encoding="utf-8") if axe.exists() else ""
        self.scripts = True

    # ── the browser ──

    @contextmanager
    def browser(self, name: str, *, scripts: bool) -> Iterator[Any]:
        self.scripts = scripts
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or "/usr/bin/chromium"
        profile = Path(self.known["profile"], f"profile-{name}")
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        if not scripts:
            options.add_experimental_option("prefs", {"profile.managed_default_content_settings.javascript": 2})
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        service = webdriver.ChromeService(executable_path=shutil.which("chromedriver") or "/usr/bin/chromedriver")
        driver = webdriver.Chrome(options=options, service=service)
        driver.set_page_load_timeout(60)
        try:
            yield driver
            said = [entry for entry in driver.get_log("browser") if "favicon" not in entry["message"]]
            self.failures += [f"{name}: {entry['message']}" for entry in said]
        finally:
            driver.quit()

    def wait(self, driver: Any, until: Any, what: str) -> Any:
        try:
            return WebDriverWait(driver, PATIENCE_S, 0.1).until(until)
        except Exception as error:
            driver.save_screenshot(str(self.shots / "failed.png"))
            raise AssertionError(f"{what}, at {driver.current_url}") from error

    def shoot(self, driver: Any, name: str) -> None:
        for scheme in SCHEMES:
            media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
            driver.save_screenshot(str(self.shots / f"{name}-{scheme}.png"))
            self.check_rules(driver, f"{name}-{scheme}")
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
        self.check_narrow(driver, name)

    def check_narrow(self, driver: Any, name: str) -> None:
        """On a telephone's width tables scroll within themselves; the page does not, and plots are seen whole."""
        metrics = {"width": NARROW, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        wide = driver.execute_script("return document.documentElement.scrollWidth")
        plots = driver.execute_script(PLOTS)
        whole = driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})["data"]
        (self.shots / f"{name}-narrow.png").write_bytes(base64.b64decode(whole))
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        if wide > NARROW:
            self.failures.append(f"{name}: {wide} px wide in a window of {NARROW}")
        self.failures += [f"{name}: {plot}" for plot in plots]

    def check_rules(self, driver: Any, name: str) -> None:
        """axe-core's rules: names, roles, landmarks, contrast. It runs beside the page, past its own policy."""
        if self.rules and self.scripts:
            driver.execute_script(self.rules)
            found = driver.execute_async_script(AXE)
            self.failures += [f"{name}: accessibility: {problem}" for problem in found]

    def open(self, driver: Any, path: str) -> None:
        driver.get(self.url + path)

    def heading(self, driver: Any) -> str:
        return str(driver.find_element(By.TAG_NAME, "h1").text)

    # ── the other doors ──

    def call(self, *argv: str) -> dict[str, Any]:
        body = {"tool": "palyra.process.run", "input": {"command": argv[0], "args": list(argv[1:])}}
        body["workspace"] = self.known["workspace"]
        return self.post("/v1/calls", self.known["agent"], body)

    def post(self, path: str, token: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        request = urllib.request.Request(
            self.url + path,
            data=json.dumps(body or {}).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    # ── the stations ──

    def log_in(self, driver: Any, *, by_link: bool) -> None:
        if by_link:
            driver.get(self.post("/console/v1/links", self.known["operator"])["url"])
        else:
            self.open(driver, "/console/approvals")
            assert "/console/login" in driver.current_url, "who is not logged in is led to the login page"
            driver.find_element(By.NAME, "token").send_keys(self.known["operator"])
        driver.find_element(By.CSS_SELECTOR, "button.main").click()
        self.wait(driver, lambda d: d.find_elements(By.CSS_SELECTOR, "nav[aria-label=Console]"), "logged in")
        cookie = driver.get_cookie("palyra_session")
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict"), cookie

    def approve(self, driver: Any, approval_id: str, *, by_keys: bool) -> None:
        item = f"ask-{approval_id}"
        self.wait(driver, lambda d: d.find_elements(By.ID, item), "the request is in the queue")
        if not by_keys:
            form = f"#{item} form[data-act=approve] button"
            driver.find_element(By.CSS_SELECTOR, form).click()
        else:
            self.select(driver, item)
            driver.execute_async_script("setTimeout(arguments[0], 800)")
            driver.switch_to.active_element.send_keys("a")
        self.wait(driver, lambda d: "said=approved" in d.current_url, "approved")
        assert not driver.find_elements(By.ID, item)

    def select(self, driver: Any, item: str) -> None:
        body = driver.find_element(By.TAG_NAME, "body")
        for _ in range(20):
            body.send_keys("j")
            if driver.switch_to.active_element.get_attribute("id") == item:
                return
        raise AssertionError("j never came to the request")

    def walk(self, name: str, *, scripts: bool) -> None:
        with self.browser(name, scripts=scripts) as driver:
            self.log_in(driver, by_link=scripts)
            self.open(driver, "/console/approvals")
            pending = self.call("git", "status", name)
            assert pending["status"] == "pending_approval", pending
            if not scripts:
                driver.refresh()
            self.approve(driver, pending["approval"]["approval_id"], by_keys=scripts)
            done = self.call("git", "status", name)
            assert done["status"] == "completed", done["message"]
            self.open(driver, f"/console/calls/{done['call_id']}")
            assert done["call_id"] in self.heading(driver)
            self.shoot(driver, f"{name}-call")
            self.enable_skill(driver)
            self.shoot(driver, f"{name}-skill")
            self.upload_skill(driver, self.known["packages"][int(scripts)])
            self.shoot(driver, f"{name}-uploaded")
            self.open(driver, "/console/journal/verify")
            driver.find_element(By.ID, "verify").click()
            self.wait(driver, lambda d: "The journal verifies." in d.page_source, "verified")
            self.shoot(driver, f"{name}-verified")

    def enable_skill(self, driver: Any) -> None:
        page = "/console/skills/acme.other"
        self.open(driver, page)
        for stop in driver.find_elements(By.CSS_SELECTOR, "form[action$='/disable'] button"):
            stop.click()
            self.wait(driver, lambda d: "said=disabled" in d.current_url, "disabled")
            break
        driver.find_element(By.ID, "enable").click()
        self.wait(driver, lambda d: "said=enabled" in d.current_url, "enabled")
        assert "active" in driver.find_element(By.CSS_SELECTOR, "header.head .state").text

    def upload_skill(self, driver: Any, package: str) -> None:
        self.open(driver, "/console/skills")
        driver.find_element(By.NAME, "package").send_keys(package)
        driver.find_element(By.CSS_SELECTOR, "form[action$='/skills/install'] button").click()
        self.wait(driver, lambda d: "said=installed" in d.current_url, "installed")
        assert "quarantine" in driver.find_element(By.CSS_SELECTOR, "header.head .state").text

    def hostile(self) -> None:
        """Pages full of hostile output: nothing runs, nothing is loaded, and a line of a megabyte is just text."""
        with self.browser("hostile", scripts=True) as driver:
            self.log_in(driver, by_link=True)
            for name in ("hostile", "long", "echo", "refused", "failed"):
                self.open(driver, f"/console/calls/{self.known['calls'][name]}")
                assert not driver.find_elements(By.CSS_SELECTOR, "main script, main img, main iframe")
                wide = driver.execute_script(
                    "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
                )
                assert wide, f"{name} makes the page wider than the window"
                self.shoot(driver, f"page-call-{name}")

    def portrait(self) -> None:
        """The pictures of docs/guide/console.md."""
        with self.browser("portrait", scripts=True) as driver:
            driver.set_window_size(1180, 860)
            self.log_in(driver, by_link=True)
            for scheme, name, path in (("light", "overview", ""), ("dark", "approvals", "/approvals")):
                media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
                driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
                self.open(driver, f"/console{path}")
                driver.save_screenshot(str(self.shots / f"console-{name}.png"))

    def pages(self) -> None:
        paths = {
            "overview": "", "approvals": "/approvals", "calls": "/calls", "runs": "/runs", "journal": "/journal",
            "policy": "/policy", "explain": "/policy/explain?tool=palyra.process.run&principal=agent:demo",
            "replay": "/policy/replay?posture=developer", "processes": "/processes", "secrets": "/secrets",
            "tokens": "/tokens", "doctor": "/doctor", "skills": "/skills", "skill": "/skills/acme.echo?version=0.2.0",
        }  # fmt: skip
        with self.browser("pages", scripts=True) as driver:
            self.open(driver, "/console/login")
            self.shoot(driver, "page-login")
            self.log_in(driver, by_link=True)
            for name, path in paths.items():
                self.open(driver, f"/console{path}")
                self.heading(driver)
                self.shoot(driver, f"page-{name}")
            self.open(driver, "/console/approvals")
            driver.find_element(By.CSS_SELECTOR, "#queue a[data-open]").click()
            self.shoot(driver, "page-approval")
            self.open(driver, "/console/runs")
            driver.find_element(By.CSS_SELECTOR, "tbody a.id").click()
            self.shoot(driver, "page-run")
            driver.set_window_size(420, 900)
            self.open(driver, "/console")
            self.shoot(driver, "page-narrow")

    def keyboard(self) -> None:
        """Tab comes to the content at once, and everything that can be done can be focused."""
        with self.browser("keyboard", scripts=True) as driver:
            self.log_in(driver, by_link=True)
            self.open(driver, "/console/approvals")
            driver.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
            assert driver.switch_to.active_element.get_attribute("class") == "skip"


def main() -> int:
    walk = Walk(json.load(sys.stdin), Path(sys.argv[1]))
    if walk.known["portrait"]:
        walk.portrait()
        return 0
    walk.pages()
    walk.hostile()
    walk.walk("scripts", scripts=True)
    walk.walk("no-scripts", scripts=False)
    walk.keyboard()
    for failure in walk.failures:
        print(f"palyra: the browser said: {failure}", file=sys.stderr)
    print(f"palyra: screenshots in {walk.shots}")
    return 1 if walk.failures else 0


if __name__ == "__main__":
    sys.exit(main())
