"""`palyra skills new ID`: a project for a skill that builds, passes its tests and can be installed as it stands."""

from __future__ import annotations

import os
from pathlib import Path

import click
import orjson

from palyra.cli.options import Settings, with_settings
from palyra.cli.say import say
from palyra.cli.skills_author import explained

LANGUAGES = ("wat", "c", "rust", "assemblyscript", "python", "javascript")
EXAMPLES = """\b
Examples:
  palyra skills new acme.echo
  palyra skills new acme.echo --lang assemblyscript --output ~/skills
"""


@click.command("new", epilog=EXAMPLES)
@click.argument("skill_id", metavar="ID")
@click.option(
    "--lang", type=click.Choice(LANGUAGES), default="wat", show_default=True, help="The language of its code."
)
@click.option(
    "--output", metavar="DIR", default=".", help="Create its folder in this one (default: the current folder)."
)
@with_settings
def command(settings: Settings, skill_id: str, lang: str, output: str) -> int:
    """Write a new skill project into a folder of its name: one tool that returns the object it is given.

    ID is PUBLISHER.NAME. Nothing is overwritten: the folder must not exist yet, or must be empty.
    """
    return explained(settings, lambda: _write(settings, skill_id, lang, Path(output)))


def _write(settings: Settings, skill_id: str, lang: str, output: Path) -> int:
    from palyra.skills.findings import SkillRefused
    from palyra.skills.languages import LANGUAGES as FACTS
    from palyra.skills.languages import Language
    from palyra.skills.scaffold import project_files
    from palyra.skills.templates.load import read_sdk, read_templates
    from palyra.wiring.skill_projects import write_project

    language = Language(lang)
    sdk = {name: read_sdk(name) for name, _ in FACTS[language].sdk}
    try:
        files = project_files(skill_id, language, templates=read_templates(lang), sdk=sdk)
    except SkillRefused as refused:
        why = refused.detail.removeprefix("skill.toml: ")
        raise click.UsageError(f"{skill_id[:100]!r} is not PUBLISHER.NAME, as in acme.echo: {why}") from None
    folder = output / skill_id
    write_project(folder, files)
    if settings.json:
        click.echo(orjson.dumps({"skill_id": skill_id, "language": lang, "folder": str(folder), "files": list(files)}))
        return 0
    if not settings.quiet:
        say(f"wrote {folder}{os.sep}: {', '.join(files)}")
        say(f"next: palyra skills build {folder}")
    return 0
