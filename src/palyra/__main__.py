"""`python -m palyra`: the command line."""

import os
import sys

if not sys.flags.safe_path and sys.path and os.path.realpath(sys.path[0]) == os.path.realpath("."):
    del sys.path[0]  # `-m` puts the current folder first, which is often the workspace: what lies there is the agent's

from palyra.cli.main import main

if __name__ == "__main__":
    main()
