"""FS_ISOLATED, for programs of ours that only read: their workspace is read-only and their own code cannot be changed.

The program stands for one that was taken over by a file it reads: whatever it tries, the mount is the wall.
"""

from __future__ import annotations

import pytest

from tests.conformance.arena import PYTHON, Arena
from tests.promises import promise

pytestmark = pytest.mark.slow

OWN = "/etc/.palyra-inside/palyra/inside/own.py"
ATTACK = """
import errno, json, os
def tried(function, *arguments):
    try:
        return str(function(*arguments))
    except OSError as error:
        return errno.errorcode[error.errno]
print(json.dumps({
    "write": tried(open, "new", "w"),
    "append": tried(open, "file", "a"),
    "truncate": tried(os.truncate, "file", 0),
    "folder": tried(os.mkdir, "folder"),
    "unlink": tried(os.unlink, "file"),
    "rename": tried(os.rename, "file", "other"),
    "link": tried(os.symlink, "x", "y"),
    "hard link": tried(os.link, "file", "z"),
    "mode": tried(os.chmod, "file", 0o777),
    "times": tried(os.utime, "file"),
    "through proc": tried(open, "/proc/self/cwd/new", "w"),
    "own code": tried(open, __file__, "w"),
    "beside own code": tried(open, os.path.dirname(__file__) + "/json.py", "w"),
    "read": open("file").read(),
    "hidden": open(".env").read(),
}))
"""


@promise("fs-isolated.read-only-workspace")
def test_nothing_of_a_read_only_workspace_can_be_changed(tier_c: Arena) -> None:
    for name in ("file", ".env"):
        (tier_c.workspace / name).write_text("content")
        tier_c.give(tier_c.workspace / name)
    result = tier_c.run(
        *(PYTHON, "-I", "-S", OWN),
        own_files=((OWN, ATTACK.encode()),),
        workspace_writable=False,
        masked=(str(tier_c.workspace / ".env"),),
    )
    found = result.json
    assert found.pop("read") == "content"
    assert found.pop("hidden").startswith("# Palyra keeps this file from agents")
    assert set(found.values()) <= {"EROFS", "EACCES", "EPERM"}, found
    assert sorted(path.name for path in tier_c.workspace.iterdir()) == [".env", "file"]
    assert (tier_c.workspace / "file").read_text() == "content"
