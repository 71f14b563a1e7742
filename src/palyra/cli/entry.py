"""What `palyra` and `palyrad` start with: Ctrl-C is watched for before anything of weight is imported."""

from __future__ import annotations

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
