"""The documentation as a site: `make site` stages the pages, checks the navigation and builds with Zensical, strictly.

    python tools/website.py ZENSICAL [--output DIR]

Pages of docs/ and the project's own (README, ARCHITECTURE …) go into one folder, so that links between them hold. A
link into the code, which no site has, becomes its text. Every page must stand in NAV: a page nobody can find is a
mistake. Any warning of the builder fails the build.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[1]
STAGE = PROJECT / ".make" / "site"
OWN = ("README.md", "ARCHITECTURE.md", "SECURITY.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md")
"""Pages outside docs/; staged below project/."""
NAV: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("Start", (("Home", "index.md"), ("Quickstart", "quickstart.md"), ("Concepts", "concepts.md"),
               ("Comparison", "comparison.md"), ("Benchmarks", "benchmarks.md"), ("Questions", "faq.md"))),
    ("Guides", (("Your first policy", "guide/first-policy.md"),
                ("Learn what a program needs", "guide/learn-what-it-needs.md"),
                ("Egress for a package install", "guide/egress-for-a-package-install.md"),
                ("Approvals", "guide/approvals.md"), ("Secrets", "guide/secrets.md"),
                ("Write a skill", "guide/write-a-skill.md"), ("Embed in Python", "guide/embed-in-python.md"),
                ("MCP in your agent", "guide/mcp.md"), ("Hooks", "guide/hooks.md"), ("Console", "guide/console.md"),
                ("Many machines", "guide/cluster.md"), ("What a cluster costs", "scale.md"),
                ("Under systemd", "guide/run-under-systemd.md"),
                ("Containers and CI", "guide/containers-and-ci.md"),
                ("Verify as an auditor", "guide/verify-as-an-auditor.md"),
                ("Harden the host", "guide/harden-the-host.md"))),
    ("Trust", (("Guarantees", "guarantees.md"), ("Threat model", "threat-model.md"), ("Tests", "testing.md"),
               ("Tests of each promise", "security/tests.md"), ("Security policy", "project/SECURITY.md"))),
    ("Reference", ()),
    ("Specifications", ()),
    ("Decisions", ()),
    ("Project", (("Architecture", "project/ARCHITECTURE.md"), ("Documentation map", "README.md"),
                 ("Readme", "project/README.md"), ("Contributing", "project/CONTRIBUTING.md"),
                 ("Code of conduct", "project/CODE_OF_CONDUCT.md"), ("Changes", "project/CHANGELOG.md"))),
)  # fmt: skip
FOLDERS = {"Reference": "reference", "Specifications": "spec", "Decisions": "adr"}
"""Sections that list every page of a folder."""
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
CONFIG = """[project]
site_name = "Palyra"
site_description = "Runs an AI agent's commands in a Linux sandbox: decided by policy, signed and journaled."
docs_dir = "pages"
site_dir = "built"
use_directory_urls = false
nav = [
{nav}
]
[project.theme]
font = false
features = ["content.code.copy", "navigation.sections", "navigation.top", "search.highlight"]
[project.markdown_extensions.tables]
[project.markdown_extensions.toc]
permalink = true
[project.markdown_extensions.pymdownx.superfences]
[project.markdown_extensions.pymdownx.highlight]
"""


def stage() -> dict[str, str]:
    """Every page by its staged path, links rewritten; pictures and data are copied beside."""
    shutil.rmtree(STAGE, ignore_errors=True)
    pages_folder = STAGE / "pages"
    shutil.copytree(PROJECT / "docs", pages_folder)
    (pages_folder / "project").mkdir()
    for name in OWN:
        shutil.copy(PROJECT / name, pages_folder / "project" / name)
    pages = {}
    for page in sorted(pages_folder.rglob("*.md")):
        place = page.relative_to(pages_folder)
        text = rewrite(page.read_text(encoding="utf-8"), _origin(place))
        page.write_text(text, encoding="utf-8")
        pages[str(place)] = text
    return pages


def _origin(place: Path) -> Path:
    """Where a staged page came from."""
    return PROJECT / place.name if place.parts[0] == "project" else PROJECT / "docs" / place


def rewrite(text: str, origin: Path) -> str:
    def one(found: re.Match[str]) -> str:
        picture, words, target = found.groups()
        if re.match(r"[a-z]+:", target) or target.startswith("#"):
            return found[0]
        name, hash_sign, anchor = target.partition("#")
        place = (origin.parent / name).resolve()
        if place.is_dir() and (place / "README.md").exists():
            place /= "README.md"
        staged = _staged(place)
        if staged is None or place.is_dir():
            return words
        here = _staged(origin)
        assert here is not None
        up = "../" * (len(here.parts) - 1)
        return f"{picture}[{words}]({up}{staged}{hash_sign}{anchor})"

    return LINK.sub(one, text)


def _staged(place: Path) -> Path | None:
    if place.is_relative_to(PROJECT / "docs"):
        return place.relative_to(PROJECT / "docs")
    return Path("project", place.name) if place.parent == PROJECT and place.name in OWN else None


def navigation(pages: dict[str, str]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Sections with the pages that there are; ValueError for a page in none."""
    found = []
    for section, listed in NAV:
        rows = [(title, path) for title, path in listed if path in pages]
        if section == "Guides":  # one that is new here comes last
            others = sorted(
                path for path in pages if path.startswith("guide/") and path not in {known for _, known in rows}
            )
            rows += [(_title(pages[path]), path) for path in others]
        if section in FOLDERS:
            below = sorted(path for path in pages if path.startswith(FOLDERS[section] + "/"))
            rows += [(_title(pages[path]), path) for path in below]
        found.append((section, rows))
    lost = sorted(pages.keys() - {path for _, rows in found for _, path in rows})
    if lost:
        raise ValueError(f"no place in the navigation (tools/website.py): {', '.join(lost)}")
    return found


def _title(text: str) -> str:
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    return re.sub(r"[`\"]", "", found[1]) if found else "Untitled"


def write_config(sections: list[tuple[str, list[tuple[str, str]]]]) -> Path:
    lines = []
    for section, rows in sections:
        inner = ", ".join(f'{{ "{title}" = "{path}" }}' for title, path in rows)
        lines.append(f'  {{ "{section}" = [{inner}] }},')
    file = STAGE / "zensical.toml"
    file.write_text(CONFIG.format(nav="\n".join(lines)), encoding="utf-8")
    return file


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("zensical", help="the builder's command")
    parser.add_argument("--output", type=Path, default=PROJECT / "site")
    given = parser.parse_args()
    config = write_config(navigation(stage()))
    words = [str(Path(given.zensical).absolute()), "build", "--strict", "--clean", "--config-file", str(config)]
    done = subprocess.run(words, cwd=STAGE, capture_output=True, text=True)
    said = done.stdout + done.stderr
    if done.returncode or "warning" in said.lower():
        print(said)
        return 1
    shutil.rmtree(given.output, ignore_errors=True)
    shutil.copytree(STAGE / "built", given.output)
    print(f"{len(list(given.output.rglob('*.html')))} pages in {given.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
