"""`palyra logs ID [--follow]`: what a background process wrote, stdout to stdout and stderr to stderr.

It was redacted before it was written. On a terminal control characters are made visible; into a file or a pipe the
bytes go as they are.
"""

from __future__ import annotations

import asyncio
import codecs
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.options import Settings, with_settings
from palyra.cli.say import say_failure

if TYPE_CHECKING:
    from palyra.canon import Json
    from palyra.model.process import BackgroundProcess, LogChunk, LogPage
    from palyra.wiring.embedded import Installation

PAGE_BYTES = 64 * 1024
FOLLOW_S = 0.2


@click.command("logs", epilog="\b\nExamples:\n  palyra logs 01J…\n  palyra logs 01J… --follow")
@click.argument("id")
@click.option("-f", "--follow", is_flag=True, help="Keep printing until the process has ended.")
@click.option("--offset", type=click.IntRange(0), default=0, metavar="BYTES", help="Start at this byte (default: 0).")
@with_settings
def command(settings: Settings, id: str, follow: bool, offset: int) -> int:
    """Show what a background process wrote. --json prints the pieces of both streams; with --follow, one per line."""
    from palyra.cli.session import with_installation

    async def work(installation: Installation) -> int:
        process = await installation.background.find(id)
        if process is None:
            return unknown(id)
        await _print(installation, process, settings, follow=follow, offset=offset)
        return 0

    return with_installation(settings, work)


def unknown(id: str) -> int:
    say_failure("NOT_FOUND", f"There is no background process {id[:40]!r}.", "palyra ps --all lists them.")
    return 1


async def _print(
    installation: Installation, process: BackgroundProcess, settings: Settings, *, follow: bool, offset: int
) -> None:
    show = (_JsonLines() if follow else _JsonPage()) if settings.json else _Streams()
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
    show.end(goes_on=process.is_running)


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

    def end(self, *, goes_on: bool) -> None:
        pass

    def _visible(self, chunk: LogChunk) -> str:
        from palyra.cli.render import visible

        return visible(self._decoders[chunk.stream.value].decode(chunk.data))


class _JsonLines:
    """For who follows: each piece as it comes."""

    def page(self, page: LogPage) -> None:
        for piece in _pieces(page):
            click.echo(orjson.dumps(piece))

    def end(self, *, goes_on: bool) -> None:
        pass


class _JsonPage:
    """All of it as one value; `next` is where to go on while the process lives."""

    def __init__(self) -> None:
        self._items: list[Json] = []
        self._next = 0

    def page(self, page: LogPage) -> None:
        self._items += _pieces(page)
        self._next = page.next_offset_bytes

    def end(self, *, goes_on: bool) -> None:
        click.echo(orjson.dumps({"items": self._items, "next": self._next if goes_on else None}))


def _pieces(page: LogPage) -> Iterator[dict[str, Json]]:
    offset = page.offset_bytes
    for chunk in page.chunks:
        text = chunk.data.decode("utf-8", "replace")
        yield {"stream": chunk.stream.value, "offset_bytes": offset, "text": text}
        offset += len(chunk.data)
