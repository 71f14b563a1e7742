"""The file tools ask a person before they write what other programs obey, or a name that hides letters."""

from __future__ import annotations

import asyncio

import pytest

from palyra.engine.trip import CallRequest
from palyra.engine.walk import Engine
from palyra.guard.obeyed import hides_letters, is_obeyed
from palyra.model.approval import ApprovalState
from palyra.model.grant import Allow, Ask
from palyra.policy.store import load_posture
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry
from palyra.testing import FakePolicies, fake_ports, fake_run
from palyra.testing_approvals import FakeApprover
from tests.promises import promise

OBEYED = [
    ".hg/hgrc", "sub/.hg/hgrc", ".npmrc", "packages/a/.npmrc", ".gdbinit", ".bazelrc", ".cargo/config.toml",
    ".cargo/config", "a/.cargo/config.toml", ".pnpmfile.cjs", ".yarnrc.yml", ".dir-locals.el", ".direnv/bin/x",
    "sub/.envrc", "CLAUDE.md", "AGENTS.md", "docs/AGENTS.md", "cloudbuild.yaml", "cloudbuild.yml", "cloudbuild.json",
    "buildspec.yml", "buildspec.yaml", "./.npmrc", "a//.npmrc",
    "claude.MD", ".NPMRC", ".Cargo/CONFIG.toml", "Cloudbuild.YAML", ".HG/HgRc",
    ".npm\u200brc", ".npmrc\ufe0f", "\u202e.npmrc", ".np\u2066mrc", ".npmrc.", ".npmrc ",
    "AGENT\u017f.md", ".\uff4epmrc",
    "packages/a/.vscode/tasks.json", "a/.claude/settings.json", "a/.mcp.json", "b/.cursor/rules/x.mdc", "a/.idea/x.xml",
    "a/.Husky/pre-push", "a/.devcontainer/devcontainer.json", "a/lefthook.yml", "a/.exrc", "a/mise.toml", ".VSCODE/x",
    ".ghci", ".ocamlinit", ".erlang", ".iex.exs", ".Rprofile", ".Renviron", ".octaverc", ".bundle/config", "WARP.md",
    ".jj/repo/config.toml", "uv.toml", "NuGet.config", ".mvn/extensions.xml", ".mvn/jvm.config", "x.code-workspace",
    "x.sublime-project", ".run/x.run.xml", ".gemrc", "a/B.Code-Workspace",
    "CLAU\u00adDE.md", "AGENTS\u180e.md", "AGENTS\U000e0101.md", ".yarn\u2060rc.yml",
]  # fmt: skip
HIDDEN = [
    "src/a\u200b.py",
    "src/\u202egnp.py",
    "a\ufe0f.txt",
    "x\u2064",
    "a\U000e0100",
    "a\tb",
    "a\x1b[2J",
    "\u3164",
    "x\u180b",
]
PLAIN = ["src/x.py", "README.md", "npmrc", "cargo/config.toml", "config.toml", "notes/claude.md.txt", "hgrc", "über.md",
         "日本語.txt", "buildspec.json", "my.bazelrc.md", "config", "docs/vscode/x.md",
         "bundle/config", "code-workspace.md", "run/x.xml", "mvn/extensions.xml", "husky/x"]  # fmt: skip


@promise("commands.tool-settings")
@pytest.mark.parametrize("path", OBEYED)
def test_a_file_that_others_obey_is_known_by_each_of_its_spellings(path: str):
    assert is_obeyed(path)


@promise("commands.tool-settings")
@pytest.mark.parametrize("path", HIDDEN)
def test_a_name_that_hides_letters_is_known(path: str):
    assert hides_letters(path)


@pytest.mark.parametrize("path", PLAIN)
def test_other_files_are_neither(path: str):
    assert not is_obeyed(path)
    assert not hides_letters(path)


def assess(tool: str, given: dict, *, posture: str = "standard"):
    ports = fake_ports(policies=FakePolicies(load_posture(posture)), approver=FakeApprover(state=ApprovalState.PENDING))
    request = CallRequest(tool=tool, input=given, run=fake_run(workspace="/workspace"))
    trip, refusal = asyncio.run(Engine(ports, make_registry(BUILTIN_TOOLS)).assess(request))
    assert refusal is None, refusal
    return trip


def patches(path: str) -> list[str]:
    quoted = "".join(f"\\{byte:03o}" for byte in path.encode())
    return [
        f"--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-a\n+b\n",
        f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+b\n",
        f"--- a/{path}\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n",
        f"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-a\n+b\n",
        f"diff --git a/x b/{path}\nrename from x\nrename to {path}\n",
        f"diff --git a/{path} b/{path}\nold mode 100644\nnew mode 100755\n",
        f'--- "a/{quoted}"\n+++ "b/{quoted}"\n@@ -1 +1 @@\n-a\n+b\n',
        f"--- {path}\n+++ {path}\n@@ -1 +1 @@\n-a\n+b\n",
        f"--- {path}\tx\r\n+++ {path}\tx\r\n@@ -1 +1 @@\n-a\n+b\n",
    ]


@promise("commands.tool-settings")
@pytest.mark.parametrize("posture", ["standard", "developer"])
@pytest.mark.parametrize("path", [".npmrc", "sub/CLAUDE.md", ".hg/hgrc", ".cargo/config.toml", "src/a\u200b.py"])
def test_writing_such_a_file_asks(path: str, posture: str):
    for name in (path, f"/workspace/{path}"):
        trip = assess("palyra.fs.write", {"path": name, "text": "x"}, posture=posture)
        assert isinstance(trip.decision, Ask), name
        assert trip.decision.policies == ("guard.75-file-others-obey",)
    for patch in patches(path):
        trip = assess("palyra.fs.apply_patch", {"patch": patch}, posture=posture)
        assert isinstance(trip.decision, Ask), patch


def test_reading_such_a_file_and_writing_another_do_not():
    assert isinstance(assess("palyra.fs.read", {"path": ".npmrc"}).decision, Allow)
    assert isinstance(assess("palyra.fs.write", {"path": "src/x.py", "text": ".npmrc"}).decision, Allow)
    for patch in patches("src/x.py"):
        assert isinstance(assess("palyra.fs.apply_patch", {"patch": patch}).decision, Allow), patch


@promise("commands.tool-settings")
def test_a_patch_that_cannot_be_read_changes_nothing_and_asks_nobody():
    assert isinstance(assess("palyra.fs.apply_patch", {"patch": "no patch of .npmrc"}).decision, Allow)
