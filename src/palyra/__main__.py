"""`python -m palyra`: the command line."""

import os
import sys


def _begins_here() -> bool:
    """Whether the first place that modules are looked for is the current folder. One that is gone holds none."""
    try:
        return bool(sys.path) and os.path.realpath(sys.path[0]) == os.path.realpath(".")
    except OSError:
        return False


if not sys.flags.safe_path and _begins_here():
    del sys.path[0]  # `-m` puts the current folder first, which is often the workspace: what lies there is the agent's

from palyra.cli.entry import main  # noqa: E402  # only now is it ours

if __name__ == "__main__":
    main()
