"""Stories of granted hosts, as a user lives them: `--allow-host`, hints, package installs, records that verify."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from palyra import Palyra
from tests.command_line import Cli
from tests.e2e.granted import need, run_granted
from tests.registries import NAME, make_npm, make_pypi
from tests.servers import Seen, tcp, web

pytestmark = pytest.mark.slow


@pytest.fixture
def server() -> Iterator[Seen]:
    with web() as seen:
        yield seen


def test_curl_reaches_the_granted_host_and_the_outcome_says_what_it_reached(developer: Cli, server: Seen) -> None:
    need("curl")
    outcome = run_granted(developer, server, "curl", "-sS", f"http://granted.test:{server.port}/")
    assert outcome["success"], outcome
    assert outcome["output"]["stdout"] == "hello from the granted host\n"
    egress = outcome["output"]["egress"]
    assert egress["mode"] == "strict"
    assert egress["allowed_hosts"] == [f"granted.test:{server.port}", f"127.0.0.1:{server.port}"]
    [one] = egress["connections"]
    assert set(one) == {"host", "port", "verdict", "bytes_up", "bytes_down"}
    assert (one["host"], one["port"], one["verdict"]) == ("granted.test", server.port, "allowed")
    assert "HOST_ALLOWLIST" in outcome["attestation"]["sandbox_enforcement"]["guarantees"]
    assert outcome["attestation"]["egress_sha256"]


def test_the_outcome_with_connections_verifies_offline(developer: Cli, server: Seen) -> None:
    need("curl")
    outcome = run_granted(developer, server, "curl", "-sS", f"http://granted.test:{server.port}/")
    file = developer.workspace / "outcome.json"
    file.write_text(json.dumps(outcome))
    assert developer("verify", str(file)).returncode == 0
    outcome["output"]["egress"]["connections"][0]["host"] = "innocent.test"
    file.write_text(json.dumps(outcome))
    assert developer("verify", str(file)).returncode == 1
    assert developer("journal", "verify").returncode == 0


def test_a_host_in_the_arguments_that_is_not_granted_is_refused_before_anything_runs(
    developer: Cli, server: Seen
) -> None:
    need("curl")
    outcome = run_granted(developer, server, "curl", "-sS", "http://evil.test/")
    assert (outcome["status"], outcome["reason"]) == ("refused", "EGRESS_DENIED")
    assert "--allow-host evil.test" in outcome["hint"]


def test_a_refused_connection_is_recorded_and_the_hint_names_the_host(developer: Cli, server: Seen) -> None:
    need("curl")
    (developer.workspace / "urls").write_text('url = "http://hidden.test:8080/"\n')
    outcome = run_granted(developer, server, "curl", "-sS", "--fail", "--config", "urls")
    assert (outcome["status"], outcome["success"]) == ("completed", False)
    assert "hidden.test:8080" in outcome["hint"]
    assert "--allow-host" in outcome["hint"]
    [one] = outcome["output"]["egress"]["connections"]
    assert (one["host"], one["port"], one["verdict"]) == ("hidden.test", 8080, "denied")


def test_a_redirect_to_a_host_that_is_not_granted_goes_nowhere(developer: Cli, server: Seen) -> None:
    need("curl")
    with web() as private:
        url = f"http://granted.test:{server.port}/to?http://127.0.0.1:{private.port}/"
        outcome = run_granted(developer, server, "curl", "-sS", "--fail", "--location", url)
        assert private.connections == 0
    assert outcome["success"] is False


def test_without_any_grant_there_is_no_network_and_the_modes_have_their_aliases(developer: Cli, server: Seen) -> None:
    need("curl")
    url = f"http://127.0.0.1:{server.port}/"
    config = developer.workspace / "config"
    config.write_text(f'url = "{url}"\n')
    codes = {}
    for mode in ("strict", "block_all", "preflight", "none", "allow_all"):
        words = ("--egress", mode, "--allow", "curl", "--allow-interpreters", "--", "curl", "-sSfK", "config")
        codes[mode] = developer("run", *words).returncode
    assert codes["strict"] == codes["block_all"] == 7
    assert codes["preflight"] == codes["none"] == codes["allow_all"] == 0


def test_tier_b_cannot_enforce_granted_hosts_and_says_so(developer: Cli, server: Seen) -> None:
    need("curl")
    url = f"http://granted.test:{server.port}/"
    words = ("--tier", "b", "--allow-host", f"granted.test:{server.port}", "--allow", "curl", "--", "curl", url)
    outcome = developer.outcome("run", "--json", *words)
    assert outcome["reason"] == "UNENFORCEABLE"
    assert "--tier c" in outcome["hint"]


def test_a_call_that_asks_for_hosts_gets_no_others(developer: Cli, server: Seen) -> None:
    need("curl")
    with (developer.home / "palyra.toml").open("a") as file:
        hosts = [f"{name}:{server.port}" for name in ("granted.test", "other.test", "127.0.0.1")]
        file.write(
            f'[tool_call.process_runner]\nallowed_executables = ["curl", "sh"]\nallowed_egress_hosts = {hosts}\n'
        )
    (developer.workspace / "urls").write_text(f'url = "http://other.test:{server.port}/"\n')
    asked = {"command": "curl", "args": ["-sS", "--fail", "--config", "urls"]}
    reached = developer.outcome("call", "palyra.process.run", json.dumps(asked), "--json")
    assert reached["success"], reached
    narrowed = {**asked, "requested_egress_hosts": [f"granted.test:{server.port}"]}
    refused = developer.outcome("call", "palyra.process.run", json.dumps(narrowed), "--json")
    assert refused["success"] is False
    assert "other.test" in refused["hint"]


def test_a_background_process_is_served_by_its_keeper(developer: Cli, server: Seen) -> None:
    need("curl")
    with (developer.home / "palyra.toml").open("a") as file:
        hosts = [f"{name}:{server.port}" for name in ("granted.test", "127.0.0.1")]
        file.write(f'[tool_call.process_runner]\nallowed_executables = ["curl"]\nallowed_egress_hosts = {hosts}\n')
    asked = {
        "command": "curl",
        "args": ["-sS", f"http://granted.test:{server.port}/"],
        "background": True,
        "lifetime": "detached",
    }
    started = developer.outcome("call", "palyra.process.run", json.dumps(asked), "--json")
    assert started["success"], started
    logs = developer("logs", started["output"]["process_id"], "--follow")
    assert b"hello from the granted host" in logs.stdout, logs
    entries = developer("journal", "tail", "--json").stdout
    assert b'"allowed":1' in entries.replace(b" ", b""), entries


# ── the story of a package install ──


def test_pip_installs_from_the_granted_registry(developer: Cli, tmp_path: Path) -> None:
    need("pip3")
    make_pypi(tmp_path)
    with web(tmp_path) as seen:
        words = ("pip3", "install", "--disable-pip-version-check", "--index-url")
        index = f"http://registry.test:{seen.port}/simple/"
        more = ("--trusted-host", "registry.test", "--target", "packages", NAME)
        outcome = run_granted(developer, seen, *words, index, *more, name="registry.test", timeout=120)
        assert outcome["success"], outcome
        assert (developer.workspace / "packages" / "palyra_sample.py").read_text() == "ANSWER = 42\n"


def test_npm_installs_from_the_granted_registry_and_again_without_it(developer: Cli, tmp_path: Path) -> None:
    need("npm")
    (developer.workspace / "package.json").write_text('{"name": "project", "version": "1.0.0"}')
    words = ("npm", "install", "--no-audit", "--no-fund", "--no-update-notifier")
    with web(tmp_path) as seen:
        url = f"http://registry.test:{seen.port}"
        make_npm(tmp_path, url)
        outcome = run_granted(developer, seen, *words, "--registry", url, NAME, name="registry.test", timeout=120)
        assert outcome["success"], outcome
        shutil.rmtree(developer.workspace / "node_modules")
        before = len(seen.requests)
        again = run_granted(
            developer, seen, *words, "--prefer-offline", "--registry", url, NAME, name="registry.test", timeout=120
        )
        assert again["success"], again
        assert len(seen.requests) == before
    assert (developer.workspace / "node_modules" / NAME / "index.js").read_text() == "module.exports = 42\n"


@pytest.mark.parametrize("program", ["pip3", "npm"])
def test_an_install_without_the_grant_fails_fast_and_the_hint_names_the_registry(
    developer: Cli, server: Seen, program: str
) -> None:
    need(program)
    words: tuple[str, ...]
    if program == "npm":
        (developer.workspace / "package.json").write_text('{"name": "project", "version": "1.0.0"}')
        (developer.workspace / ".npmrc").write_text("registry=http://packages.test/\n")
        words = tuple(f"npm install --no-audit --no-fund --fetch-retries 0 {NAME}".split())
    else:
        (developer.workspace / "wanted.txt").write_text(f"--index-url https://packages.test/simple/\n{NAME}\n")
        words = tuple("pip3 install --disable-pip-version-check --retries 0 --target packages -r wanted.txt".split())
    outcome = developer.outcome("run", "--json", "--allow", program, "--", *words, timeout=120)
    assert outcome["success"] is False
    assert "--allow-host packages.test" in outcome["hint"]


def test_the_cache_of_one_workspace_is_not_seen_in_another(developer: Cli, server: Seen, tmp_path: Path) -> None:
    words = ("sh", "-c", "cat ~/.cache/mark 2>/dev/null; echo mine > ~/.cache/mark")
    first = run_granted(developer, server, *words)
    again = run_granted(developer, server, *words)
    other = developer.workspace.parent / f"{developer.workspace.name}-other"
    other.mkdir()
    try:
        hosts = ("--allow-host", f"granted.test:{server.port}")
        elsewhere = developer.outcome("run", "--json", *hosts, "--workspace", str(other), "--", *words)
    finally:
        other.rmdir()
    outputs = [one["output"]["stdout"] for one in (first, again, elsewhere)]
    assert outputs == ["", "mine\n", ""]


def test_ssh_like_hosts_that_speak_first_are_reached_by_a_raw_client(developer: Cli) -> None:
    code = "import socket,sys; print(socket.create_connection(('granted.test', int(sys.argv[1]))).recv(100).decode())"
    with tcp(greeting=b"SSH-2.0-test\r\n") as seen:
        outcome = run_granted(developer, seen, "python3", "-c", code, str(seen.port))
    assert outcome["output"]["stdout"].strip() == "SSH-2.0-test", outcome


def test_block_all_means_no_host_at_all_from_python_too(developer: Cli) -> None:
    with (developer.home / "palyra.toml").open("a") as file:
        file.write('[tool_call.process_runner]\nallowed_egress_hosts = ["granted.test"]\n')
    with Palyra.open(home=str(developer.home)) as palyra:
        hosts = {}
        for mode in ("strict", "block_all"):
            run = palyra.run(principal="user:test", workspace=developer.workspace, egress=mode)
            hosts[mode] = run.call("palyra.process.run", {"command": "true"}).output["egress"]["allowed_hosts"]
    assert hosts == {"strict": ["granted.test"], "block_all": []}
