"""The child's environment is rebuilt, and keys that make programs run or load things are never set."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.config.schema import Config
from palyra.errors import Reason, Rejected
from palyra.guard.environ import FIXED, build_environment, is_banned
from palyra.model.environment import HARMLESS
from tests.promises import promise


def build(caller=(), settable=(), operator=()):
    return build_environment(
        search_path=("/usr/bin", "/bin"), home="/home/agent", caller=dict(caller), settable=settable, operator=operator
    )


BASE = (
    ("HOME", "/home/agent"),
    ("LANG", "C.UTF-8"),
    ("LC_ALL", "C.UTF-8"),
    ("LOGNAME", "agent"),
    ("PATH", "/usr/bin:/bin"),
    ("TERM", "dumb"),
    ("TMPDIR", "/tmp"),
    ("USER", "agent"),
)


@promise("commands.environment")
def test_nothing_is_inherited(monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_ENGINE", "x")
    assert build() == BASE


def test_listed_keys_and_the_operators_own_are_set():
    built = build({"CI": "1", "TZ": "UTC"}, ("CI", "TZ"), (("MODE", "x"), ("TZ", "Z")))
    assert built == tuple(sorted((*BASE, ("CI", "1"), ("TZ", "Z"), ("MODE", "x"))))


def test_a_key_that_is_not_settable_is_refused_and_the_setting_named():
    with pytest.raises(Rejected) as caught:
        build({"CI": "1"})
    assert caught.value.reason is Reason.BAD_ARGUMENTS
    assert "settable_env" in (caught.value.hint or "")


@pytest.mark.parametrize("who", ["AUTHOR", "COMMITTER"])
@pytest.mark.parametrize("what", ["NAME", "EMAIL", "DATE"])
def test_whose_a_commit_is_can_be_said_where_it_was_allowed(who, what):
    key = f"GIT_{who}_{what}"
    assert (key, "x") in build(operator=((key, "x"),))
    assert (key, "x") in build({key: "x"}, (key,))
    with pytest.raises(Rejected):
        build({key: "x"})
    with pytest.raises(Rejected):
        build({key.lower(): "x"}, (key.lower(),))


@promise("commands.environment")
@pytest.mark.parametrize(
    "key",
    """LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT DYLD_INSERT_LIBRARIES GCONV_PATH NODE_OPTIONS PYTHONPATH PYTHONSTARTUP
    PYTHONHOME BASH_ENV ENV PERL5OPT PERL5LIB RUBYOPT RUBYLIB GIT_SSH_COMMAND GIT_CONFIG_COUNT JAVA_TOOL_OPTIONS
    _JAVA_OPTIONS IFS PS4 PROMPT_COMMAND SSH_ASKPASS SSH_AUTH_SOCK HTTP_PROXY https_proxy All_Proxy NO_PROXY PALYRA_HOME
    ld_preload BASH_FUNC_x TAR_OPTIONS LESSOPEN EDITOR PAGER GLIBC_TUNABLES POSIXLY_CORRECT XDG_CONFIG_HOME
    RUSTC_WRAPPER
    PYTHONWARNINGS DOTNET_STARTUP_HOOKS LUA_INIT_5_4 OPENSSL_CONF MAKEFLAGS RIPGREP_CONFIG_PATH""".split(),
)
def test_banned_keys_are_refused_to_callers_and_to_operators(key):
    with pytest.raises(Rejected):
        build({key: "x"}, (key,))
    with pytest.raises(Rejected):
        build(operator=((key, "x"),))


@pytest.mark.parametrize("key", sorted(FIXED))
def test_the_plans_own_keys_are_nobody_elses(key):
    with pytest.raises(Rejected):
        build({key: "x"}, (key,))
    with pytest.raises(Rejected):
        build(operator=((key, "x"),))


@pytest.mark.parametrize(
    "pair", [("1X", "a"), ("A-B", "a"), ("", "a"), ("A=B", "a"), ("A\nB", "a"), ("X", "a\0b"), ("X", "a" * 4097)]
)
def test_what_is_no_pair_is_refused(pair):
    with pytest.raises(Rejected):
        build(operator=(pair,))


@pytest.mark.parametrize("key", ["CI", "TZ", "COLUMNS", "MY_VAR", "RUST_BACKTRACE", "PYTHONUNBUFFERED", "DEBUG", "CC"])
def test_harmless_keys_are_not_banned(key):
    assert not is_banned(key)


@promise("commands.environment")
@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4))
def test_no_caller_gets_anything_unlisted(caller):
    try:
        built = build(caller, ("CI",))
    except Rejected:
        assert not set(caller) <= {"CI"} or "\0" in caller["CI"]
        return
    assert built == tuple(sorted((*BASE, *caller.items())))
    assert set(caller) <= {"CI"}


def test_a_value_that_is_not_utf8_is_measured_and_passed_on():
    odd = "\udcff" * 10
    given_on = build_environment(
        search_path=("/usr/bin",), home="/home/agent", caller={"MODE": odd}, settable=("MODE",)
    )
    assert dict(given_on)["MODE"] == odd


@promise("commands.environment")
@pytest.mark.parametrize("key", "PATH HOME USER LOGNAME TMPDIR PWD OLDPWD SHELL SHLVL".split())
def test_no_key_of_the_sandbox_is_anybody_elses(key):
    with pytest.raises(Rejected) as caught:
        build({}, (), ((key, "x"),))
    assert caught.value.fields == ((f"env.{key}", "fixed"),)


def test_a_value_may_have_4096_bytes_and_not_one_more():
    assert dict(build({"MODE": "x" * 4096}, ("MODE",)))["MODE"] == "x" * 4096
    for value in ("x" * 4097, "é" * 2049, "a\0b"):
        with pytest.raises(Rejected) as caught:
            build({"MODE": value}, ("MODE",))
        assert caught.value.reason is Reason.BAD_ARGUMENTS


def test_a_call_sets_harmless_variables_to_plain_words():
    words = {"NODE_ENV": "test", "CI": "true", "LC_TIME": "", "LANG": "de_DE.UTF-8", "LC_ALL": "C"}
    words |= {"NO_COLOR": "1", "PYTHONUNBUFFERED": "", "RUST_LOG": "palyra=debug,hyper=info", "TZ": "Europe/Berlin"}
    assert words.items() <= dict(build(words, Config().tool_call.process_runner.settable_env)).items()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("NODE_ENV", "../../x"),
        ("NODE_ENV", "a b"),
        ("CI", "$(id)"),
        ("CI", "a\nb"),
        ("TZ", ":/etc/passwd"),
        ("TZ", "/x"),
        ("TZ", "../x"),
        ("TZ", "a/../../b"),
        ("LANG", "zh_TW.BIG5"),
        ("LC_ALL", "zh_TW"),
        ("LC_CTYPE", "../x.UTF-8"),
        ("RUST_LOG", "/x"),
    ],
)
def test_a_harmless_variable_takes_no_path_no_code_and_no_other_charset(key, value):
    with pytest.raises(Rejected) as caught:
        build({key: value}, Config().tool_call.process_runner.settable_env)
    assert caught.value.fields == ((f"env.{key}", "no plain word"),)
    assert dict(build((), (), ((key, value),)))[key] == value, "the operator may set any"


def test_no_harmless_variable_is_banned_or_fixed():
    assert [key for key in HARMLESS if is_banned(key) or key in FIXED] == []


def test_a_refused_variable_names_what_the_agent_can_do_and_apart_what_an_operator_can():
    with pytest.raises(Rejected) as caught:
        build({"MODE": "x"})
    agents, operators = caught.value.hint.split("An operator can ")
    assert "export MODE=" in agents
    assert "settable_env" in operators


def test_refused_keys_are_named_where_they_stand():
    with pytest.raises(Rejected) as caught:
        build({"LD_PRELOAD": "x"}, ("LD_PRELOAD",))
    assert caught.value.fields == (("env.LD_PRELOAD", "never settable"),)
    with pytest.raises(Rejected) as caught:
        build({"CI": "x"})
    assert caught.value.fields == (("env.CI", "not settable"),)


def test_the_plan_says_user_language_terminal_and_folders():
    built = build_environment(
        search_path=("/a", "/b"),
        home="/h",
        user="u",
        lang="L",
        term="T",
        tmpdir="/t",
        caller={},
        settable=(),
        also=(("GIT_CONFIG_COUNT", "1"),),
    )
    assert dict(built) == {
        "GIT_CONFIG_COUNT": "1",
        "HOME": "/h",
        "LANG": "L",
        "LC_ALL": "L",
        "LOGNAME": "u",
        "PATH": "/a:/b",
        "TERM": "T",
        "TMPDIR": "/t",
        "USER": "u",
    }


def test_a_shape_bans_by_its_end_and_a_start_by_its_beginning():
    assert [key for key in ("MY_PROXY", "my_proxy", "PROXY", "GIT_X", "XGIT_X", "GI") if is_banned(key)] == [
        "MY_PROXY",
        "my_proxy",
        "GIT_X",
    ]
