"""Toolchains of the machine: what they look up below /etc is there, in both tiers."""

from __future__ import annotations

import os
import re
import shutil

import pytest

from tests.command_line import Cli

MAIN = "public class Main { public static void main(String[] args) { System.out.println(args[0]); } }"


@pytest.mark.skipif(not shutil.which("javac", path="/usr/bin"), reason="this machine has no Java compiler")
@pytest.mark.parametrize("tier", ["b", "c"])
def test_a_java_program_is_compiled_and_runs(cli: Cli, tier: str) -> None:
    (cli.workspace / "Main.java").write_text(MAIN)
    grant = ("run", "--tier", tier, "--allow-root-tier-b", "--allow-interpreters", "--")
    built = cli(*grant, "bash", "-c", "javac Main.java && java Main hello")
    assert (built.returncode, built.stdout, built.stderr) == (0, b"hello\n", b"")


@pytest.mark.skipif(not os.path.exists("/etc/services"), reason="this machine names no ports")
def test_ports_are_known_by_their_names(cli: Cli) -> None:
    look = "import socket; print(socket.getservbyname('http'), socket.getprotobyname('tcp'))"
    found = cli("run", "--allow-interpreters", "--", "python3", "-c", look)
    assert (found.returncode, found.stdout, found.stderr) == (0, b"80 6\n", b"")


@pytest.mark.parametrize("argv", [("less", "-V"), ("timeout", "9", "less", "-V"), ("bash", "-c", "less -V")])
@pytest.mark.skipif(not os.path.exists("/usr/bin/less"), reason="this machine has no less")
def test_the_flags_that_a_refused_program_is_told_let_it_run(cli: Cli, argv: tuple[str, ...]) -> None:
    refused = cli("run", "--", *argv)
    typed = re.search(rb"for this call: palyra run ([^;]*);", refused.stderr)
    assert (refused.returncode, bool(typed)) == (126, True), refused.stderr
    assert typed is not None
    done = cli("run", *typed[1].decode().split(), "--", *argv)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    "line",
    ["df .", "free", "hexdump -C numbers", "printenv HOME", "hostname", "uptime", "bc numbers", "csplit numbers 2",
     "numfmt --to=iec 2048", "b2sum numbers"],
)  # fmt: skip
def test_everyday_programs_that_run_nothing_need_no_flag(cli: Cli, line: str) -> None:
    if not shutil.which(line.split()[0], path="/usr/bin"):
        pytest.skip("not on this machine")
    (cli.workspace / "numbers").write_text("1\n2\n")
    done = cli("run", "--", *line.split())
    assert (done.returncode, done.stderr, bool(done.stdout)) == (0, b"", True)
