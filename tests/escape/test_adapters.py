"""What an agent leaves in its workspace must not run in the operator's own process when an adapter starts again."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from palyra.adapters.running import Commands
from palyra.api import Palyra, grant
from tests.promises import promise

_FRAMEWORK = "langchain.agents.middleware.shell_tool"


@pytest.fixture
def langchain_shell(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The adapter alone: of the framework it needs one class to stand below."""
    parts = _FRAMEWORK.split(".")
    for count in range(1, len(parts) + 1):
        name = ".".join(parts[:count])
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setattr(sys.modules[_FRAMEWORK], "BaseExecutionPolicy", object, raising=False)
    yield importlib.import_module("palyra.adapters.langchain_shell")
    sys.modules.pop("palyra.adapters.langchain_shell", None)


def _plant(workspace: Path, proof: Path) -> None:
    """A package called `palyra`, and modules with names that everything imports."""
    code = f"open({str(proof)!r}, 'a').write(__name__ + ' ')\n"
    (workspace / "palyra").mkdir()
    for name in ("palyra/__init__.py", "palyra/__main__.py", "click.py", "sitecustomize.py"):
        (workspace / name).write_text(code)


@promise("commands.adapter-imports")
@pytest.mark.parametrize("python_path", ["", ".", "{workspace}"])
def test_a_package_called_palyra_in_the_workspace_is_not_what_a_shell_is_started_by(
    langchain_shell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python_path: str
) -> None:
    workspace, proof = tmp_path / "workspace", tmp_path / "escaped"
    workspace.mkdir()
    _plant(workspace, proof)
    monkeypatch.chdir(workspace)
    if python_path:
        monkeypatch.setenv("PYTHONPATH", python_path.format(workspace=workspace))
    policy = langchain_shell.PalyraExecutionPolicy(home=str(tmp_path / "home"))
    shell = policy.spawn(workspace=workspace, env={}, command=["/bin/sh"])
    assert shell.communicate("echo inside\n", timeout=60)[0] == "inside\n"
    assert not proof.exists()


@promise("commands.adapter-imports")
def test_modules_in_the_current_folder_are_not_what_python_m_palyra_imports(tmp_path: Path) -> None:
    proof = tmp_path / "escaped"
    _plant(tmp_path, proof)
    (tmp_path / "palyra" / "__init__.py").unlink()  # else it is another program that was asked for
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-m", "palyra", "--version"], cwd=tmp_path, env=environment, capture_output=True, timeout=60
    )
    assert (done.returncode, proof.exists()) == (0, False)


@pytest.fixture
def smolagents(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    names = ("smolagents", "smolagents.local_python_executor", "smolagents.tools")
    for name in names:
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setattr(sys.modules[names[1]], "CodeOutput", types.SimpleNamespace, raising=False)
    monkeypatch.setattr(sys.modules[names[1]], "PythonExecutor", object, raising=False)
    monkeypatch.setattr(sys.modules[names[2]], "Tool", object, raising=False)
    monkeypatch.setattr(sys.modules[names[2]], "get_tools_definition_code", str, raising=False)
    yield importlib.import_module("palyra.adapters.smolagents")
    sys.modules.pop("palyra.adapters.smolagents", None)


@promise("commands.adapter-imports")
def test_a_key_in_what_a_step_prints_or_returns_is_redacted(smolagents: Any, tmp_path: Path) -> None:
    key = "ghp_" + "a1B2" * 9
    (tmp_path / "workspace").mkdir()
    code = f"key = '{key[:9]}' + '{key[9:]}'\nprint(key, 'printed')\nfirst = {{'key': key}}\nkey"
    with Palyra.open(tmp_path / "home") as palyra:
        run = palyra.run("agent:coder", tmp_path / "workspace", grant=grant(interpreters=True))
        executor = smolagents.PalyraPythonExecutor(run)
        done = executor(code)
        again = executor("first")
    assert (done.logs, done.output) == ("[redacted:github:1] printed\n", "[redacted:github:1]")
    assert again.output == {"key": "[redacted:github:1]"}


@promise("commands.adapter-imports")
def test_a_file_with_a_secret_of_the_vault_is_not_read_past_the_redactor(tmp_path: Path) -> None:
    secret = "correct horse battery\nstaple"
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "plain").write_bytes(bytes(range(256)) * 9)
    (workspace / "holds").write_text(f"before {secret} behind")
    store = [sys.executable, "-P", "-m", "palyra", "--home", str(tmp_path / "home"), "secrets", "set", "horse"]
    subprocess.run(store, input=secret.encode(), check=True, capture_output=True, timeout=60)
    with Palyra.open(tmp_path / "home") as palyra:
        run = palyra.run("agent:coder", workspace, grant=grant(interpreters=True))
        assert Commands(run).read("plain") == bytes(range(256)) * 9
        with pytest.raises(PermissionError, match="contains a secret"):
            Commands(run).read("holds")
