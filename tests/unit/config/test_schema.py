"""Configuration: unknown keys and wrong values are errors that name their path; defaults work."""

from __future__ import annotations

import pytest

from palyra.config.credentials import CredentialConfig
from palyra.config.load import Home, load_config
from palyra.config.schema import Config, ConfigKeyError, parse_config
from palyra.errors import ConfigError
from tests.promises import promise


def test_an_empty_file_is_the_default():
    assert parse_config({}) == Config()


@pytest.mark.parametrize(
    ("mapping", "path"),
    [
        ({"surprise": 1}, ("surprise",)),
        ({"posture": "open"}, ("posture",)),
        ({"tool_call": {"process_runner": {"tier": "a"}}}, ("tool_call", "process_runner", "tier")),
        ({"tool_call": {"max_calls_per_run": True}}, ("tool_call", "max_calls_per_run")),
        ({"tool_call": {"max_calls_per_run": -1}}, ("tool_call", "max_calls_per_run")),
        ({"tool_call": {"max_calls_per_run": 1.5}}, ("tool_call", "max_calls_per_run")),
        ({"tool_call": {"allowed_tools": "palyra.*"}}, ("tool_call", "allowed_tools")),
        ({"tool_call": {"allowed_capabilities": ["fly"]}}, ("tool_call", "allowed_capabilities")),
        ({"tool_call": {"process_runner": {"path": ["bin"]}}}, ("tool_call", "process_runner", "path")),
        ({"tool_call": 3}, ("tool_call",)),
    ],
)
def test_a_wrong_key_or_value_names_its_path(mapping, path):
    with pytest.raises(ConfigKeyError) as caught:
        parse_config(mapping)
    assert caught.value.path == path


def test_equal_configurations_have_equal_digests_and_others_do_not():
    assert Config().digest == parse_config({"posture": "standard"}).digest
    assert Config().digest != parse_config({"posture": "developer"}).digest


def test_an_error_in_a_file_names_file_and_line(tmp_path):
    home = Home(tmp_path)
    home.config_file.write_text('posture = "standard"\n\n[tool_call.process_runner]\nmax_procesess = 3\n')
    with pytest.raises(ConfigError) as caught:
        load_config(home)
    assert caught.value.detail.startswith(f"{home.config_file}:4: Unknown key tool_call.process_runner.max_procesess.")


@promise("state.owner-only")
def test_a_configuration_everyone_may_write_is_refused(tmp_path):
    home = Home(tmp_path)
    home.config_file.write_text("")
    home.config_file.chmod(0o666)
    with pytest.raises(ConfigError):
        load_config(home)


@promise("workspace.own-configuration")
def test_the_workspace_and_the_current_folder_are_never_read(tmp_path, monkeypatch):
    (tmp_path / "palyra.toml").write_text('posture = "developer"\n')
    monkeypatch.chdir(tmp_path)
    config, source = load_config(Home(tmp_path / "home"))
    assert (config, source) == (Config(), None)


def test_credentials_are_tables_and_name_secrets_never_hold_them():
    config = parse_config({"credentials": [{"host": "api.test", "secret": "TOKEN", "prefix": "Bearer "}]})
    assert config.credentials == (CredentialConfig(host="api.test", secret="TOKEN", prefix="Bearer "),)
    assert config.digest != parse_config({}).digest


@pytest.mark.parametrize(
    "given",
    [
        {"host": "api.test"},
        {"secret": "TOKEN"},
        {"host": "https://api.test", "secret": "TOKEN"},
        {"host": "api.test", "secret": "TOKEN", "value": "x"},
        {"host": "*.test", "secret": "TOKEN"},
        {"host": "api.test", "secret": "TOKEN", "header": "Host"},
        {"host": "api.test", "secret": "a b"},
        {"host": "api.test", "secret": "TOKEN", "prefix": "a\r\nb"},
    ],
)
def test_a_credential_that_cannot_be_one_is_an_error(given: dict[str, str]):
    with pytest.raises(ConfigError):
        parse_config({"credentials": [given]})


def test_a_passphrase_file_is_named_absolutely():
    """A relative one would be looked for in the current folder, where agents write."""
    with pytest.raises(ConfigError, match="absolute"):
        parse_config({"vault": {"key": "passphrase", "passphrase_file": "passphrase"}})


def test_credentials_that_are_no_tables_are_an_error():
    for wrong in ("x", ["x"], {"host": "a"}):
        with pytest.raises(ConfigError, match="credentials"):
            parse_config({"credentials": wrong})


def test_known_principals_have_roles_and_others_none():
    principals = parse_config({"principals": {"known": ["agent:ci-*", "user:*"], "operators": ["user:op"]}}).principals
    assert principals.roles_of("agent:ci-1") == ("agent",)
    assert principals.roles_of("user:op") == ("developer", "operator")
    assert principals.roles_of("agent:demo") == ()
    assert Config().principals.roles_of("agent:demo") == ("agent",)
    with pytest.raises(ConfigError, match="neither agent:NAME nor user:NAME"):
        parse_config({"principals": {"known": ["*"]}})


def test_shadow_mode_needs_an_absolute_folder():
    with pytest.raises(ConfigError, match="absolute folder"):
        parse_config({"policy": {"mode": "shadow", "candidate": "policies"}})
