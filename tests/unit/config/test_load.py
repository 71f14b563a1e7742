"""A configuration that cannot be read, or that somebody else can write, stops the start; it is never just "none"."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from palyra.config.load import Home, HomeError, find_home, load_config
from palyra.errors import ConfigError
from tests.promises import promise


@pytest.fixture
def home(tmp_path: Path) -> Home:
    root = tmp_path / "home"
    root.mkdir(mode=0o700)
    return Home(root)


def write(path: Path, *, mode: int = 0o600) -> None:
    path.write_text('posture = "locked"\n')
    path.chmod(mode)


def test_a_file_is_read_and_no_file_is_the_default(home: Home, tmp_path: Path):
    assert load_config(Home(tmp_path / "new"))[1] is None
    write(home.config_file)
    config, source = load_config(home)
    assert (config.posture, source) == ("locked", home.config_file)


@pytest.mark.parametrize("kind", ["dangling link", "folder", "fifo", "link to a fifo", "loop"])
def test_what_stands_in_the_files_place_never_means_that_there_is_none(home: Home, kind: str):
    place = home.config_file
    match kind:
        case "dangling link":
            place.symlink_to("nowhere")
        case "folder":
            place.mkdir()
        case "fifo":
            os.mkfifo(place)
        case "link to a fifo":
            os.mkfifo(home.root / "fifo")
            place.symlink_to("fifo")
        case "loop":
            place.symlink_to(place)
    with pytest.raises(ConfigError, match=r"palyra\.toml"):
        load_config(home)


def test_a_home_that_is_a_dangling_link_never_means_no_configuration(tmp_path: Path):
    (tmp_path / "home").symlink_to("nowhere")
    with pytest.raises(ConfigError):
        load_config(Home(tmp_path / "home"))
    with pytest.raises(HomeError):
        find_home(str(tmp_path / "home" / "below"))


@pytest.mark.parametrize(("mode", "who"), [(0o620, "Its group"), (0o602, "Everyone")])
def test_a_file_that_others_can_write_is_refused(home: Home, mode: int, who: str):
    write(home.config_file, mode=mode)
    with pytest.raises(ConfigError, match=who):
        load_config(home)
    with pytest.raises(ConfigError, match=who):
        load_config(home, str(home.config_file))


def test_a_file_in_a_folder_that_others_can_write_is_refused_also_behind_a_link(home: Home, tmp_path: Path):
    open_folder = tmp_path / "open"
    open_folder.mkdir()
    open_folder.chmod(0o777)
    write(open_folder / "real.toml")
    home.config_file.symlink_to(open_folder / "real.toml")
    with pytest.raises(ConfigError, match=r"Everyone on this machine can write .*open"):
        load_config(home)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(home: Home):
    write(home.config_file)
    os.chown(home.config_file, 54321, -1)
    with pytest.raises(ConfigError, match="uid 54321"):
        load_config(home)


@pytest.mark.parametrize("bad", ["/" + "a" * 300, "/tmp/\udcff", "/tmp/a\0b", "/dev/null/home"])
def test_a_home_that_cannot_be_one_is_wrong_usage(bad: str):
    with pytest.raises(HomeError):
        find_home(bad)


def test_a_user_without_a_home_is_told_to_name_one(monkeypatch: pytest.MonkeyPatch):
    for key in ("HOME", "PALYRA_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 987654)
    with pytest.raises(HomeError, match="no home folder"):
        find_home()


@promise("workspace.own-configuration")
def test_a_home_is_never_found_in_the_current_folder_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """An agent that may write there would bring its own configuration and policies."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.setenv("XDG_DATA_HOME", ".")
    monkeypatch.delenv("PALYRA_HOME", raising=False)
    assert find_home().root == tmp_path / "me/.local/share/palyra", "a relative one is none: XDG"
    monkeypatch.setenv("HOME", ".")
    with pytest.raises(HomeError, match="no home folder"):
        find_home()
    monkeypatch.setenv("PALYRA_HOME", ".palyra")
    with pytest.raises(HomeError, match="not an absolute path"):
        find_home()
    assert find_home("here").root == tmp_path / "here", "who types it means it"
