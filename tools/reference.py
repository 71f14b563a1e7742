#!/usr/bin/env python3
"""Writes the generated pages below docs/, each from the code it speaks of. `--check` writes nothing and fails on drift.

    reference.py [--check]

The pages: reference/acts.md from the table of acts, reference/cli.md from the commands, reference/config.md from the
configuration's dataclasses, reference/http.md from the daemon's routes, reference/mcp-conformance.md from what is not
claimed, reference/policy.md from the policies' schema and bundles, reference/reasons.md from the table of reasons,
reference/tools.md from the catalogue of built-in tools, benchmarks.md from the records of `make bench`, guarantees.md
from the enum of guarantees, the plans of the backends and the tests that attack them.

Not here: what each page says of its subject (the reference_… files beside this one), pages written by hand
(tests/unit/test_docs.py holds those against the code).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from palyra.errors import Reason
from palyra.journal.acts import SHAPES
from palyra.model.reasons import REASONS
from palyra.model.tool import ToolSpec
from palyra.protocol.catalog import BUILTIN_TOOLS
from reference_bench import make_bench
from reference_cli import make_cli
from reference_config import make_config
from reference_guarantees import make_guarantees
from reference_http import make_http
from reference_mcp import make_mcp
from reference_policy import make_policy

PROJECT = Path(__file__).parents[1]
SOURCE = PROJECT / "src" / "palyra"
MADE = "<!-- Written by tools/reference.py (make docs); edit the code it is made from. -->\n\n"


# ── reasons ──────────────────────────────────────────────────────────────────


def make_reasons() -> Iterator[str]:
    yield "# Reasons"
    yield (
        "Every outcome that is not a plain success carries one of these codes in `reason`, with a sentence in "
        "`message` and, where the caller can do something, a `hint`. Codes stay; sentences may change, so a "
        "program compares the code. `palyra explain CODE` prints the same rows."
    )
    used = _reasons_in_use()
    rows = ["| reason | what it means | what to do |", "|---|---|---|"]
    rows += [f"| `{reason}` | {page.meaning} | {page.remedy} |" for reason, page in REASONS.items()]
    yield "\n".join(rows)
    reserved = [f"`{reason}`" for reason in Reason if reason not in used]
    if reserved:
        yield f"Part of the contract, and given by nothing in this version: {', '.join(reserved)}."


def _reasons_in_use() -> frozenset[str]:
    """The reasons some module raises or some policy carries."""
    texts = [
        path.read_text(encoding="utf-8")
        for path in sorted((*SOURCE.rglob("*.py"), *SOURCE.rglob("*.cedar")))
        if path not in (SOURCE / "errors.py", SOURCE / "model" / "reasons.py")
    ]
    found = (re.findall(r'\bReason\.([A-Z_]+)\b|@code\("([A-Z_]+)"\)', text) for text in texts)
    names = {name for pairs in found for pair in pairs for name in pair if name}
    if any("raise Unenforceable(" in text or "-> Unenforceable:" in text for text in texts):
        names.add(Reason.UNENFORCEABLE)  # the exception carries it
    return frozenset(names)


# ── tools ────────────────────────────────────────────────────────────────────


def make_tools() -> Iterator[str]:
    yield "# Built-in tools"
    yield (
        "`palyra tools list` and `palyra tools show TOOL` print the same. Schemas are JSON Schema 2020-12; "
        "`x-maxBytes` bounds a string in UTF-8 bytes, and where a schema says integer, `1.0` is refused. What "
        "parallelism and projection mean is in [the protocol](../spec/protocol.md)."
    )
    for spec in sorted(BUILTIN_TOOLS, key=lambda spec: spec.name):
        yield from _describe_tool(spec)


def _describe_tool(spec: ToolSpec) -> Iterator[str]:
    capabilities = ", ".join(f"`{c.value}`" for c in sorted(spec.capabilities)) or "none"
    yield f"## {spec.name}"
    yield spec.description
    yield "\n".join(
        (
            "| | |",
            "|---|---|",
            f"| version | {spec.version} |",
            f"| kind | `{spec.kind.value}` |",
            f"| capabilities | {capabilities} |",
            f"| parallelism | `{spec.parallelism.value}` |",
            f"| projection | `{spec.projection.value}` |",
            f"| sensitive | {'yes' if spec.sensitive else 'no'} |",
            f"| largest input | {spec.max_input_bytes} bytes |",
            f"| schema_sha256 | `{spec.schema_sha256}` |",
        )
    )
    yield f"Input:\n\n```json\n{json.dumps(spec.input_schema, indent=2)}\n```"
    yield f"Output:\n\n```json\n{json.dumps(spec.output_schema, indent=2)}\n```"


# ── acts ─────────────────────────────────────────────────────────────────────


def make_acts() -> Iterator[str]:
    yield "# Acts"
    yield (
        "What is done to an installation beside its calls is journaled in the same transaction as the change itself, "
        "as an entry of type `urn:palyra:act:v1` (see [the journal](../spec/journal.md)). `palyra journal tail --text "
        "NAME` lists them. A secret is told by its name alone."
    )
    rows = ["| act | subject | details | what happened |", "|---|---|---|---|"]
    for kind, shape in SHAPES.items():
        details = " ".join(f"`{name}`" for name in sorted(shape.details)) or "–"
        rows.append(f"| `{kind.value}` | `{shape.noun}` | {details} | {shape.meaning} |")
    yield "\n".join(rows)


# ── pages ────────────────────────────────────────────────────────────────────

PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "docs/reference/acts.md": make_acts,
    "docs/reference/cli.md": make_cli,
    "docs/reference/config.md": make_config,
    "docs/reference/http.md": make_http,
    "docs/reference/mcp-conformance.md": make_mcp,
    "docs/reference/policy.md": make_policy,
    "docs/reference/reasons.md": make_reasons,
    "docs/reference/tools.md": make_tools,
    "docs/benchmarks.md": make_bench,
    "docs/guarantees.md": make_guarantees,
}


def make_page(page: str) -> str:
    return MADE + "\n\n".join(PAGES[page]()) + "\n"


def find_drift() -> list[str]:
    """The pages on disk that are not what would be written now."""
    return [page for page in PAGES if _on_disk(PROJECT / page) != make_page(page)]


def _on_disk(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail when a page would change")
    if parser.parse_args(argv).check:
        drift = find_drift()
        for page in drift:
            print(f"  ✗ {page} is out of date: make docs")
        return 1 if drift else 0
    for page in PAGES:
        (PROJECT / page).parent.mkdir(parents=True, exist_ok=True)
        (PROJECT / page).write_text(make_page(page), encoding="utf-8")
        print(f"wrote {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
