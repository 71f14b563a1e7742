"""The operator's grant for one call, as flags: `--allow`, `--allow-interpreters`, `--allow-host`, `--read` … of `palyra
run` and `palyra call`, so that a refusal's hint is a flag of the command that was refused.

Not here: what a grant means (wiring/grants, the policies), limits of a call (cli/run).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from palyra.model.call import OperatorGrant

EGRESS_WORDS = ("none", "preflight", "strict", "allow_all", "block_all")


def parse_names(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    for name in value:
        if "/" in name or not name.strip():
            raise click.BadParameter(
                f"{name!r} is not a program name; the folders to search are `path` in the configuration"
            )
    return value


def parse_folders(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    for folder in value:
        if not os.access(folder, os.F_OK):
            raise click.BadParameter(f"{folder!r} does not exist")
    return value


def parse_pairs(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    pairs = []
    for item in value:
        key, equals, text = item.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{item!r} is not K=V")
        pairs.append((key, text))
    return tuple(pairs)


_OPTIONS = (
    click.option(
        "--tier",
        type=click.Choice(["auto", "b", "c"]),
        default=None,
        help="c (default): a sandbox. b: a plain process under limits. auto: as configured.",
    ),
    click.option(
        "--allow-root-tier-b",
        is_flag=True,
        help="Started by root, in a workspace of root's: keep uid 0 in tier B. Otherwise the program runs as nobody.",
    ),
    click.option(
        "--egress",
        type=click.Choice(EGRESS_WORDS),
        default=None,
        help="strict (default): only the hosts of --allow-host and the configuration, else no network. block_all: no "
        "network. preflight: only hosts named in the arguments are checked. none, allow_all: every host.",
    ),
    click.option(
        "--allow-host",
        "hosts",
        multiple=True,
        metavar="HOST[:PORT]",
        help="A host it may reach. Repeatable.",
    ),
    click.option(
        "--allow-raw",
        "raw_hosts",
        multiple=True,
        metavar="HOST:PORT",
        help="A host it may reach on this port in any protocol, unread. Repeatable.",
    ),
    click.option(
        "--allow",
        "executables",
        multiple=True,
        metavar="EXE",
        callback=parse_names,
        help="Allow a program that is not on the allowlist. Repeatable.",
    ),
    click.option(
        "--allow-interpreters",
        is_flag=True,
        help="Let code run: bash, python, make, node. What else can run code, as vim and sqlite3, needs --allow too.",
    ),
    click.option(
        "--read",
        "read_roots",
        multiple=True,
        metavar="PATH",
        callback=parse_folders,
        help="A folder or file outside the workspace that it may read. Repeatable.",
    ),
    click.option(
        "--env", "env", multiple=True, metavar="K=V", callback=parse_pairs, help="Set a variable. Repeatable."
    ),
)


def with_grant_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Under the names `grant_of` and `grant_words` read."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def hosts_of(flags: dict[str, Any]) -> list[str]:
    """Of both flags, as the engine and a daemon read them: `HOST:PORT raw` for --allow-raw."""
    return [*flags["hosts"], *(f"{host} raw" for host in flags["raw_hosts"])]


def grant_of(flags: dict[str, Any]) -> OperatorGrant:
    from palyra.wiring.grants import grant

    return grant(
        executables=flags["executables"],
        interpreters=bool(flags["allow_interpreters"]),
        read_roots=flags["read_roots"],
        env=dict(flags["env"]),
        egress=flags["egress"],
        hosts=hosts_of(flags),
        tier=None if flags["tier"] == "auto" else flags["tier"],
        root_tier_b=bool(flags["allow_root_tier_b"]),
    )


def grant_words(flags: dict[str, Any]) -> dict[str, Any]:
    """The same for a daemon; None is left out of what is sent."""
    return {
        "tier": flags["tier"],
        "allow_root_tier_b": flags["allow_root_tier_b"] or None,
        "egress": flags["egress"],
        "allow_host": hosts_of(flags) or None,
        "allow": list(flags["executables"]) or None,
        "allow_interpreters": flags["allow_interpreters"] or None,
        "read": [os.path.abspath(folder) for folder in flags["read_roots"]] or None,
        "env": dict(flags["env"]) or None,
    }
