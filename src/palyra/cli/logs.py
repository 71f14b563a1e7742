"""`palyra logs ID [--follow]`: what a background process wrote, stdout to stdout and stderr to stderr.

It was redacted before it was written. On a terminal control characters are made visible; into a file or a pipe the
bytes go as they are.
"""

from __future__ import annotations

import asyncio
import codecs
import sys
from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.options import Settings, with_settings

if TYPE_CHECKING:
    from palyra.canon import Json
    from palyra.model.process import BackgroundProcess, LogChunk, LogPage
    from palyra.wiring.embedded import Installation

PAGE_BYTES = 64 * 1024
FOLLOW_S = 0.2


@click.command("logs", epilog="\b\nExamples:\n  palyra logs 01J…\n  palyra logs 01J… --follow")
@click.argument("id")
@click.option("-f", "--follow", is_flag=True, help="Go on until the process has ended.")
@click.option("--offset", type=click.IntRange(0), default=0, metavar="BYTES", help="From here on (default: the start).")
@with_settings
def command(settings: Settings, id: str, follow: bool, offset: int) -> int:
    """Show what a background process wrote; with --json one object a line, each a piece of one stream."""
    from palyra.cli.session import with_installation

    async def work(installation: Installation) -> int:
        process = await installation.background.find(id)
        if process is None:
            return unknown(id)
        await _print(installation, process, settings, follow=follow, offset=offset)
        return 0

    return with_installation(settings, work)


def unknown(id: str) -> int:
    from palyra.cli.render import visible

    click.echo(f"palyra: there is no background process {visible(id[:40])!r}.", err=True)
    click.echo("hint: palyra ps --all lists them.", err=True)
    return 1


async def _print(
    installation: Installation, process: BackgroundProcess, settings: Settings, *, follow: bool, offset: int
) -> None:
    show = _Json() if settings.json else _Streams()
    while True:
        page = installation.background.read(process, offset_bytes=offset, max_bytes=PAGE_BYTES)
        if page.dropped_bytes and not settings.quiet:
            click.echo(f"palyra: {page.dropped_bytes} older bytes were dropped.", err=True)
        show.page(page)
        at_end, offset = page.next_offset_bytes == offset, page.next_offset_bytes
        if at_end and not (follow and process.is_running):
            break
        if at_end:
            await asyncio.sleep(FOLLOW_S)
            # Looked at before the last page is read: what it wrote until its end is there then.
            process = await installation.background.find(process.process_id) or process


class _Streams:
    """For people and pipes."""

    def __init__(self) -> None:
        decode = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": decode("replace"), "stderr": decode("replace")}

    def page(self, page: LogPage) -> None:
        for chunk in page.chunks:
            target = sys.stdout if chunk.stream.value == "stdout" else sys.stderr
            if target.isatty():
                click.echo(self._visible(chunk), nl=False, err=target is sys.stderr)
            else:
                target.buffer.write(chunk.data)
                target.buffer.flush()

    def _visible(self, chunk: LogChunk) -> str:
        from palyra.cli.render import visible

        return visible(self._decoders[chunk.stream.value].decode(chunk.data))


class _Json:
    def page(self, page: LogPage) -> None:
        offset = page.offset_bytes
        for chunk in page.chunks:
            item: dict[str, Json] = {
                "stream": chunk.stream.value,
                "offset_bytes": offset,
                "text": chunk.data.decode("utf-8", "replace"),
            }
            offset += len(chunk.data)
            click.echo(orjson.dumps(item))
