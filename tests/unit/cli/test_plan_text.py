"""`palyra sandbox explain` in words: what would run and what holds it, nothing a caller chose shown raw."""

from __future__ import annotations

from palyra.cli.plan_text import plan_lines, seconds, size

PLAN = {
    "kind": "process",
    "argv": ["ls", "a b\x1b"],
    "program": "/usr/bin/ls",
    "program_sha256": "ab" * 32,
    "tier": "C",
    "backend": "bubblewrap",
    "executor": "sandbox_tier_c_linux_bubblewrap",
    "cwd": "/srv/work",
    "closed": [["parent", "/srv/work/.git"], ["protected", "/srv/work/.git/hooks"]],
    "net": {"mode": "strict", "allowed_hosts": ["example.org:443"]},
    "limits": {
        "wall_ms": 1500,
        "cpu_ms": 60000,
        "memory_bytes": 1 << 30,
        "processes": 512,
        "output_bytes": 1 << 20,
    },
    "env": [["HOME", "/home/agent"]],
    "guarantees": ["FS_ISOLATED", "TREE_KILL"],
    "degraded": ["MEMORY_LIMIT_TREE"],
    "launcher": ["/usr/bin/bwrap", "--perms", "0444", "--file", "{0}"],
}


def test_a_plan_says_what_would_run_and_what_holds_it():
    assert plan_lines({"refused": None, "plan": PLAN}) == [
        'would run   "ls" "a b\\x1b"',
        "program     /usr/bin/ls sha256 abababababababab",
        "sandbox     tier C, bubblewrap (sandbox_tier_c_linux_bubblewrap)",
        "folder      /srv/work",
        "read-only   /srv/work/.git/hooks",
        "network     strict; hosts granted: example.org:443",
        "limits      1.5 s, 60 s of processor time, 1 GiB of memory, 512 processes, 1 MiB of output",
        "guaranteed  FS_ISOLATED, TREE_KILL",
        "missing     MEMORY_LIMIT_TREE",
        'environment HOME="/home/agent"',
        "started by  /usr/bin/bwrap --perms 0444 --file '{0}'",
    ]


def test_a_refusal_says_why_and_what_to_change():
    refused = {"reason": "INTERPRETER_DENIED", "message": "bash is an interpreter.", "hint": "Allow it."}
    assert plan_lines({"refused": refused, "plan": None, "where": "a node of the cluster"}) == [
        "refused     INTERPRETER_DENIED: bash is an interpreter.",
        "hint        Allow it.",
        "where       a node of the cluster",
    ]


def test_amounts_have_the_unit_in_which_they_are_whole():
    assert [size(n) for n in (0, 1000, 1536, 64 << 20, 1 << 60)] == [
        "0 bytes",
        "1000 bytes",
        "1536 bytes",
        "64 MiB",
        f"{1 << 20} TiB",
    ]
    assert [seconds(n) for n in (1, 500, 120_000)] == ["0.001 s", "0.5 s", "120 s"]
