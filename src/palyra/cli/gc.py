"""`palyra gc`: remove what is past its time and what processes that are gone left behind; say what, and how much."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.options import Settings, with_settings
from palyra.cli.say import say, say_error
from palyra.state.person import owner_principal

if TYPE_CHECKING:
    from palyra.wiring.embedded import Installation
    from palyra.wiring.gc import Leftover

SHOWN = 20
"""Names of each kind that are told; the numbers are always of all."""
NOTES = {
    "artifact": "artifacts past gc.keep_artifacts_days",
    "blob": "files that belong to no artifact",
    "log": "logs of ended processes past gc.keep_logs_days",
    "value": "values that were marked for removal",
    "file": "half-written files whose writer is gone",
    "cgroup": "empty cgroups of calls that are gone",
    "container": "containers whose engine is gone",
    "probe": "trial folders of probes that were killed",
    "launcher": "launchers of empty sandboxes whose owner was killed",
    "workspace_blob": "files of workspaces in the cluster's blob store past gc.keep_blobs_days",
}


@click.command("gc", epilog="\b\nExamples:\n  palyra gc --dry-run\n  palyra gc\n  palyra gc --json")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@with_settings
def command(settings: Settings, dry_run: bool) -> int:
    """Remove old artifacts and logs, and what dead processes left behind: cgroups, containers, partial files.

    Nothing in use is touched. Artifacts and logs are kept for gc.keep_artifacts_days and gc.keep_logs_days. In a
    cluster also files of workspaces in the blob store that no call has used for gc.keep_blobs_days.
    For the journal's records there is palyra journal retain.
    """
    from palyra.cli.session import with_installation

    async def work(installation: Installation) -> int:
        from palyra.wiring.gc import Collector

        collector = Collector(installation)
        terms = collector.terms()
        found = await collector.find(terms)
        left = () if dry_run else await collector.remove(found, terms, actor=owner_principal())
        _say(settings, found, left, dry_run=dry_run)
        return 1 if left else 0

    return with_installation(settings, work)


def _say(settings: Settings, found: Sequence[Leftover], left: Sequence[Leftover], *, dry_run: bool) -> None:
    if settings.json:
        items = [_row(kind, found, left) for kind in NOTES if any(one.kind == kind for one in found)]
        click.echo(orjson.dumps({"dry_run": dry_run, "items": items, "next": None}))
    elif not settings.quiet:
        _say_to_people(found, dry_run=dry_run)
    for one in left:
        say_error(f"{one.name} could not be removed.", "Check who owns it, and run palyra gc again.")


def _row(kind: str, found: Sequence[Leftover], left: Sequence[Leftover]) -> dict[str, object]:
    of_kind = [one for one in found if one.kind == kind]
    return {
        "kind": kind,
        "count": sum(one.count for one in of_kind),
        "bytes": sum(one.size_bytes for one in of_kind),
        "names": [one.name for one in of_kind[:SHOWN]],
        "not_removed": [one.name for one in left if one.kind == kind],
    }


def _say_to_people(found: Sequence[Leftover], *, dry_run: bool) -> None:
    if not found:
        say("Nothing to remove.")
    verb = "would remove" if dry_run else "removed"
    for kind, note in NOTES.items():
        of_kind = [one for one in found if one.kind == kind]
        if of_kind:
            count, size = sum(one.count for one in of_kind), sum(one.size_bytes for one in of_kind)
            say(f"{verb} {count} {note}" + (f" ({size} bytes)" if size else ""))
