"""`palyra journal retain | redact`: what is kept beside the entries, and old entries themselves, removed on purpose.

The journal tells of each removal; entries of calls keep their hashes, so proofs made before go on holding.
"""

from __future__ import annotations

import click
import orjson

from palyra.cli.journal_witness import now_unix_ms, open_writer
from palyra.cli.options import Settings, with_settings
from palyra.cli.say import say_failure
from palyra.state.person import owner_principal

DAY_MS = 24 * 3600 * 1000


@click.command(
    "retain",
    epilog="\b\nExamples:\n  palyra journal retain\n  palyra journal retain --records-days 30 --entries-days 365\n"
    "  palyra journal retain --records-days 0 --principal agent:demo",
)
@click.option(
    "--records-days",
    type=click.IntRange(0, 36_500),
    metavar="N",
    help="Remove inputs, plans and outcomes older than this (default: journal.keep_records_days).",
)
@click.option(
    "--entries-days",
    type=click.IntRange(0, 36_500),
    metavar="N",
    help="Seal entries older than this into files, and remove files twice as old (default: journal.keep_entries_days).",
)
@click.option("--principal", metavar="PRINCIPAL", help="Only records of this principal's calls.")
@with_settings
def retain(settings: Settings, records_days: int | None, entries_days: int | None, principal: str | None) -> int:
    """Remove what is past its retention time; without options, as configured."""
    from palyra.config.load import find_home, load_config
    from palyra.state.retention import Removed, delete_records
    from palyra.state.segments import drop_segments, seal_entries

    config, _ = load_config(find_home(settings.home), settings.config)
    records = config.journal.keep_records_days or None if records_days is None else records_days
    entries = config.journal.keep_entries_days or None if entries_days is None else entries_days
    now, actor = now_unix_ms(), owner_principal()
    writer = open_writer(settings)
    try:
        removed, sealed, dropped = Removed(), 0, 0
        if records is not None:
            before = now - records * DAY_MS
            removed = delete_records(writer, before_unix_ms=before, at_unix_ms=now, principal=principal, actor=actor)
        if entries is not None and principal is None:
            before = now - entries * DAY_MS
            dropped = len(drop_segments(writer, before_unix_ms=before - entries * DAY_MS, at_unix_ms=now, actor=actor))
            sealed = len(seal_entries(writer, before_unix_ms=before, at_unix_ms=now, actor=actor))
    finally:
        writer.close()
    _tell_standing(settings, removed.standing_approvals)
    said = {"calls": removed.calls, "values": removed.blobs, "sealed": sealed, "dropped": dropped}
    if settings.json:
        click.echo(orjson.dumps(said))
    elif not settings.quiet:
        click.echo(f"records of {removed.calls} calls removed, {sealed} segments sealed, {dropped} segments removed")
    return 0


@click.command("redact", epilog='Example: palyra journal redact 01J… --reason "a customer asked"')
@click.argument("call_id")
@click.option("--reason", default="", metavar="TEXT", help="The reason. It is journaled, so put no secret in it.")
@with_settings
def redact(settings: Settings, call_id: str, reason: str) -> int:
    """Remove what is kept of one call and what would open its commitments. The journal records the removal."""
    from palyra.redact.values import redact_text
    from palyra.state.retention import NoSuchCall, redact_call

    writer = open_writer(settings)
    try:
        at = now_unix_ms()
        removed = redact_call(writer, call_id, actor=owner_principal(), reason=redact_text(reason), at_unix_ms=at)
    except NoSuchCall as error:
        say_failure("NOT_FOUND", error.detail, error.hint)
        return 1
    finally:
        writer.close()
    _tell_standing(settings, removed.standing_approvals)
    if settings.json:
        click.echo(orjson.dumps({"call_id": call_id, "values": removed.blobs, "openings": removed.openings}))
    elif not settings.quiet:
        click.echo(f"{removed.blobs} values and {removed.openings} openings of {call_id} removed")
    return 0


def _tell_standing(settings: Settings, count: int) -> None:
    if count and not settings.quiet:
        them = "An approval that still stands shows" if count == 1 else f"{count} approvals that still stand show"
        click.echo(f"palyra: {them} what was asked. Take it back (palyra approvals revoke ID), then repeat.", err=True)
