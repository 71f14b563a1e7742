from __future__ import annotations

import pytest

from palyra.model.host import Blocker
from palyra.sandbox.diagnose import Symptoms, diagnose, missing_program

SAID = "No permissions to create new namespace"
FULL = {"user/max_user_namespaces": 96349}


@pytest.mark.parametrize(
    ("seen", "code", "fix"),
    [
        (Symptoms(words="", started=True), "not_isolating", "doctor"),
        (
            Symptoms(words=SAID, sysctls={"user/max_user_namespaces": 0}),
            "user_namespaces_off",
            "user.max_user_namespaces=",
        ),
        (
            Symptoms(words=SAID, uid=5, sysctls={"kernel/unprivileged_userns_clone": 0}),
            "unprivileged_user_namespaces_off",
            "kernel.unprivileged_userns_clone=1",
        ),
        (
            Symptoms(words=SAID, uid=5, sysctls={"kernel/apparmor_restrict_unprivileged_userns": 1}),
            "apparmor",
            "apparmor_restrict_unprivileged_userns=0",
        ),
        (Symptoms(words=SAID, sysctls=FULL, namespaces={"user": "ENOSPC"}), "nested_sandbox", "outside"),
        (
            Symptoms(words=SAID, namespaces={"user": "", "user+net": "ENOSPC"}),
            "net_namespaces_off",
            "max_net_namespaces",
        ),
        (
            Symptoms(words=SAID, namespaces={"user": "", "user+pid": "ENOSPC"}),
            "pid_namespaces_off",
            "max_pid_namespaces",
        ),
        (Symptoms(words=SAID, namespaces={"user": "EPERM"}, seccomp=2), "container_seccomp", "seccomp=unconfined"),
        (Symptoms(words=SAID, namespaces={"user": "EPERM"}), "chroot", "chroot"),
        (Symptoms(words="Can't mount proc on /newroot/proc: Operation not permitted"), "proc_masked", "systempaths"),
        (Symptoms(words="Failed to make / slave: Operation not permitted"), "mount_refused", "unconfined"),
        (Symptoms(words="something new"), "unknown", "bwrap"),
    ],
)
def test_each_cause_has_its_own_code_and_fix(seen: Symptoms, code: str, fix: str) -> None:
    blocker = diagnose(seen)
    assert (blocker.backend, blocker.code) == ("bubblewrap", code)
    assert fix in blocker.fix


def test_settings_for_plain_users_do_not_explain_roots_troubles() -> None:
    settings = {"kernel/unprivileged_userns_clone": 0, "kernel/apparmor_restrict_unprivileged_userns": 1}
    assert diagnose(Symptoms(words="x", uid=0, sysctls=settings)).code == "unknown"


def test_an_unknown_cause_shows_what_bubblewrap_said() -> None:
    assert "something new" in diagnose(Symptoms(words="something new")).detail


@pytest.mark.parametrize(
    ("names", "command"),
    [
        (("debian",), "apt install bubblewrap"),
        (("rocky", "rhel", "centos", "fedora"), "dnf install bubblewrap"),
        (("alpine",), "apk add bubblewrap"),
        ((), "your system's package manager"),
    ],
)
def test_a_missing_program_comes_with_the_systems_own_command(names: tuple[str, ...], command: str) -> None:
    assert missing_program(names) == Blocker(
        "bubblewrap", "missing", "bubblewrap (bwrap) is not installed.", f"Install bubblewrap: {command}"
    )
