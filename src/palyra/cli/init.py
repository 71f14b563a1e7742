"""`palyra init`: a commented palyra.toml and a policy folder with examples, in the home."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.options import Settings, with_settings
from palyra.cli.say import say, say_error, say_failure

if TYPE_CHECKING:
    from palyra.config.load import Home

TEMPLATE = """# Palyra's configuration. Unknown keys are errors; docs/reference/config.md lists every key.
# This file is read from here, never from a workspace or the current folder: agents write there.

posture = "{posture}"            # locked: nothing runs until allowed · standard · developer: interpreters in tier C

[tool_call]
# allowed_tools = ["palyra.*"]
# max_calls_per_run = 0          # 0: 200, and for MCP sessions the two limits below
# max_calls_per_minute = 600
# max_calls_per_day = 20000
# execution_timeout_ms = 900000

[tool_call.process_runner]
# tier = "auto"                  # auto is tier C; "b" only when you ask for it
# allowed_executables = ["ls", "cat", "git"]   # replaces the built-in list of common programs
# allow_interpreters = false     # bash, python, node … and what runs them; a list above has to name them too
# path = ["/usr/local/bin", "/usr/bin", "/bin"]   # where programs are looked for
# read_roots = []                # further read-only folders, absolute
# settable_env = ["CI", "NODE_ENV"]           # replaces the built-in list of harmless variables
# egress_enforcement_mode = "strict"           # none | preflight | strict
# allowed_egress_hosts = []
# cpu_time_limit_ms = 3600000
# memory_limit_bytes = 4294967296
# max_processes = 2048
# max_output_bytes = 1048576
# background_lifetime_ms = 600000    # at most 1800000
# max_background_per_run = 16

[budget.run]                     # what one run may use in all; 0 is no limit
# wall_ms = 0
# output_bytes = 0

[approvals]
# request_ms = 3600000           # a request that nobody decided by then is refused
# webhook_url = ""               # told of every new request, signed
"""


@click.command("init", epilog="\b\nExamples:\n  palyra init\n  palyra init --posture developer")
@click.option(
    "--posture",
    type=click.Choice(["locked", "standard", "developer"]),
    help="Which built-in policies decide (default: standard); developer permits interpreters in tier C.",
)
@with_settings
def command(settings: Settings, posture: str | None) -> int:
    """Write a commented palyra.toml and a policy folder with examples. Existing files are never overwritten."""
    from palyra.config.load import find_home
    from palyra.policy.starter import starter_files

    home = find_home(settings.home)
    wanted = {home.config_file: TEMPLATE.format(posture=posture or "standard")}
    wanted |= {home.policies / name: text for name, text in starter_files().items()}
    os.umask(0o077)  # mkdir's mode holds for the last folder alone; parents would be open under a loose umask
    try:
        written, kept = _write_new(wanted)
    except OSError as error:
        say_failure("FAILED", f"{error.filename or home.root}: {error.strerror}.", "Name another folder with --home.")
        return 125
    if settings.json:
        click.echo(orjson.dumps({"home": str(home.root), "written": written, "kept": kept}))
    else:
        for path in written:
            say(f"wrote {path}")
        for path in kept:
            say(f"kept {path} (it was there already)")
    return _say_other_posture(home, posture) if posture and str(home.config_file) in kept else 0


def _say_other_posture(home: Home, wanted: str) -> int:
    """A kept file may say something else than what was asked for: nobody is to believe in a posture that is not set."""
    from palyra.config.load import load_config

    posture = load_config(home, str(home.config_file))[0].posture
    if posture == wanted:
        return 0
    say_error(
        f"The posture is still {posture}, as the kept file says.", f'Write posture = "{wanted}" into {home.config_file}'
    )
    return 1


def _write_new(wanted: dict[Path, str]) -> tuple[list[str], list[str]]:
    written, kept = [], []
    for path, text in wanted.items():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                with open(fd, "w", encoding="utf-8") as file:
                    file.write(text)
            except OSError:
                path.unlink()  # half of it would be kept by the next try, and read by every command
                raise
            written.append(str(path))
        except FileExistsError:
            kept.append(str(path))
    return written, kept
