"""What `palyra` and `palyrad` start with: Ctrl-C is watched for before anything of weight is imported.

Until then it just ends the process, as it ends any program that has not begun: Python's own answer is a traceback.
Touches: the handling of SIGINT, where nobody chose otherwise, by being imported. Nobody else imports this.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # what `signal` is made of, without the enumerations around it

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

from palyra.cli.finding import find_own_first
from palyra.cli.interrupts import watch
from palyra.cli.light import keep_light


def main() -> None:
    watch()
    keep_light()
    find_own_first()
    from palyra.cli.main import main

    main()


def serve_main() -> None:
    """`palyrad`: `palyra serve` under the name a system's own list of services knows it by."""
    watch()
    keep_light()
    find_own_first()
    from palyra.cli.main import serve_main

    serve_main()
