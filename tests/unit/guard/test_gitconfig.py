"""Settings that name a program are found however they are spelled; what git itself reads is what is read here."""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palyra.guard.gitconfig import MAX_BYTES, UNREADABLE, program_in, read_settings


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('[filter "x"]\n\tclean = id\n', "filter.clean"), ("[FILTER.x]CLEAN=id", "filter.clean"),
        ('[filter "a\\"]b"] process=x', "filter.process"), ("[core]\nx=1\n[include]path=../f", "include.path"),
        ('[includeIf "gitdir:/"]\npath = f', "includeif.path"), ("[diff]external=x", "diff.external"),
        ('[diff "x"]textconv', "diff.textconv"), ('[merge "x"]\ndriver = a', "merge.driver"),
        ("[core]\ngitProxy=x", "core.gitproxy"), ('[remote "o"]\nuploadpack=x', "remote.uploadpack"),
        ('[submodule "x"]\nupdate = !id', "submodule.update"), ('[filter "lfs"]\nclean = git-lfs-x', "filter.clean"),
        ("[core]\n# [x]\n; y\n[filter \"x\"] # z\nsmudge = \"a\\\nb\"", "filter.smudge"),
        ("\ufeff[filter \"x\"]\r\nclean=x\r\n", "filter.clean"), ("x" * (MAX_BYTES + 1), "more than can be read"),
        ("[filter", UNREADABLE), ("[a b]", UNREADABLE), ("[a]\n1=2", UNREADABLE), ("[a]b=\"", UNREADABLE),
        ("[a]b=\\q", UNREADABLE), ("[a \"b\" ]", UNREADABLE), ("[a]b c", UNREADABLE), ("[a \"b\n\"]", UNREADABLE),
        ('[man "x"]cmd=id', "man.cmd"), ('[browser "x"]cmd=id', "browser.cmd"),
        ("[alias]whatchanged=!id", "alias.whatchanged"), ('[lfs "customtransfer.x"]path=id', "lfs.path"),
        ('[filter "lfs"]clean="gi\\t-lfs clean -- %f"', "filter.clean"),
        ('[hook "x"]\nevent = pre-commit\ncommand = id', "hook.command"),
        ("[alias]co=checkout", ""), ("[lfs]url=https://h/", ""),
        ("", ""), ("[core]\n\tbare = false\n", ""), ("[a]b", ""), ("x = 1", ""), ("[merge]ff=only", ""),
        ('[filter "lfs"]\nclean = git-lfs clean -- %f\nrequired = true', ""), ('[submodule "x"]update=rebase', ""),
        ("[core]\neditor = \\\n[filter.x]clean=1", ""), ("[core]\nx = # [filter.x]clean=1", ""),
    ],
)  # fmt: skip
def test_a_setting_that_names_a_program_is_found(text: str, found: str) -> None:
    assert program_in(text.encode()) == found


PIECES = st.sampled_from(
    [
        "[core]", '[filter "x"]', "[Filter.x]", '[filter "a\\"b]"]', "[diff]", "[ diff]", "clean", "=", " ", "\t", "\n",
        "\r\n", "\\\n", "#", "; x", '"', "\\n", "\\q", "textconv", "x", "]", "command = id", "\v", "é", "[x]a=1",
        "1", "-",
    ]
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(PIECES, min_size=1, max_size=9).map("".join))
def test_whatever_git_reads_as_a_filter_is_one_here(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_bytes(text.encode())
    argv = ["git", "config", "-f", str(tmp_path / "config"), "--name-only", "--list", "-z"]
    told = subprocess.run(argv, capture_output=True, check=False)
    names = told.stdout.decode("utf-8", "replace").split("\0")
    if told.returncode == 0:
        programs = [name for name in names if name.startswith("filter.") or name in ("diff.textconv", "diff.command")]
        assert bool(program_in(text.encode())) >= bool(programs)
        assert program_in(text.encode()) != UNREADABLE


@pytest.mark.parametrize("said", ["[a]\n{}", "[{}]", "[a]\nb={}", '[a]\nb="{}"', "#{}"])
def test_a_word_that_fills_a_file_of_settings_is_read_as_quickly_as_any_other(said):
    """It was copied once for each of its letters: an agent writes hundreds of such files."""

    def seconds(text):
        times = []
        for _ in range(3):
            began = time.perf_counter()
            with suppress(ValueError):
                list(read_settings(text.encode()))
            times.append(time.perf_counter() - began)
        return min(times)

    assert seconds(said.format("a" * 200_000)) < 3 * seconds("[a]\nbb = cc\n" * 15_000)
