"""The console of a real daemon: `palyra console` prints a link; it logs in once; pages and events over real sockets."""

from __future__ import annotations

import http.client
import http.cookies
import json
import re
import signal
import subprocess
import urllib.parse

import pytest

PATIENCE_S = 60


@pytest.fixture
def serving(cli):
    daemon = cli.start("serve", "--port", "0", "--json")
    try:
        assert daemon.stdout is not None
        yield json.loads(daemon.stdout.readline())["listening"][0]
    finally:
        daemon.send_signal(signal.SIGTERM)
        try:
            assert daemon.wait(PATIENCE_S) == 0
        except subprocess.TimeoutExpired:
            daemon.kill()
            raise
        finally:
            daemon.communicate()


class Browser:
    """As little of one as the console needs: a cookie, and the origin that browsers send with a form."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        self.origin, self.cookie = f"{parts.scheme}://{parts.netloc}", ""
        self._place = (parts.hostname or "", parts.port or 0)

    def ask(self, method: str, path: str, fields: dict[str, str] | None = None) -> tuple[int, dict[str, str], str]:
        line = http.client.HTTPConnection(*self._place, timeout=PATIENCE_S)
        headers = {"Cookie": self.cookie} if self.cookie else {}
        if fields is not None:
            headers |= {"Origin": self.origin, "Content-Type": "application/x-www-form-urlencoded"}
        try:
            line.request(method, path, urllib.parse.urlencode(fields) if fields is not None else None, headers)
            answer = line.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            if "set-cookie" in found:
                self.cookie = found["set-cookie"].split(";")[0]
            return answer.status, found, answer.read().decode()
        finally:
            line.close()

    def stream(self, path: str) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        line = http.client.HTTPConnection(*self._place, timeout=PATIENCE_S)
        line.request("GET", path, headers={"Cookie": self.cookie})
        return line, line.getresponse()


def test_a_link_opens_the_console_once_and_events_come_over_the_line(cli, serving):
    url = json.loads(cli("console", "--json").stdout)["url"]
    assert url.startswith(f"{serving}/console/login?code=")
    browser = Browser(serving)
    code = urllib.parse.parse_qs(urllib.parse.urlsplit(url).query)["code"][0]
    assert browser.ask("GET", "/console")[0] == 303
    assert browser.ask("POST", "/console/login", {"code": code})[0] == 303
    status, headers, page = browser.ask("GET", "/console/approvals")
    assert (status, headers["content-security-policy"][:20]) == (200, "default-src 'none'; ")
    assert Browser(serving).ask("POST", "/console/login", {"code": code})[0] == 401, "once"
    events = re.search(r'data-events="([^"]+)"', page)
    assert events is not None
    line, stream = browser.stream(events[1])
    try:
        assert cli("call", "palyra.echo", "{}", "--as", "agent:demo").returncode == 0
        told = [stream.readline().decode() for _ in range(12)]
    finally:
        line.close()
    assert "event: call\n" in told or "event: call-started\n" in told


def test_without_a_daemon_the_command_says_so(cli):
    done = cli("console")
    assert done.returncode == 1
    assert b"palyra serve" in done.stderr
