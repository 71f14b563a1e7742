from __future__ import annotations

import pytest

from palyra.sandbox.evidence import parse_report, pid_max_in, problem_in

GOOD = """pid 2
interface lo
root sealed
workspace writable
CapEff 0000000000000000
NoNewPrivs 1
Seccomp 2
environ 0
sysctl sealed
held
pid_max 301"""


def test_a_whole_report_of_an_isolated_sandbox_passes() -> None:
    report = parse_report(GOOD)
    assert problem_in(report) == ""
    assert pid_max_in(report) == "301"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("pid 2", "pid 4711"),
        ("pid 2", "pid"),
        ("interface lo", "interface lo\ninterface eth0"),
        ("root sealed", "root writable"),
        ("workspace writable", "workspace sealed"),
        ("held", "sees /home/alice/secret\nheld"),
        ("NoNewPrivs 1", "NoNewPrivs 0"),
        ("Seccomp 2", "Seccomp 0"),
        ("CapEff 0000000000000000", "CapEff 000001ffffffffff"),
        ("environ 0", "environ 12"),
        ("sysctl sealed", "sysctl writable"),
    ],
)
def test_each_missing_wall_is_a_problem(old: str, new: str) -> None:
    assert problem_in(parse_report(GOOD.replace(old, new))) != ""


def test_a_report_cut_short_never_passes() -> None:
    lines = GOOD.splitlines()[:10]
    for count in range(len(lines)):
        assert problem_in(parse_report("\n".join(lines[:count]))) != ""
