"""A new project for one skill: an echo in the language asked for, that builds, passes its tests and needs nothing.

Rules: ids are checked before they become names of files; a template has holes of one form, `{{name}}`, and a hole that
nobody fills is an error; whatever fills one was checked to be plain text of the place it goes to.

Not here: the templates themselves (templates/), writing files (cli/skills_new), generated skills (candidate).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from palyra.skills.languages import LANGUAGES, Language, LanguageFacts
from palyra.skills.manifest import check_publisher, check_skill_id

_HOLE = re.compile(r"\{\{([a-z_]+)\}\}")
_NO_TOOLCHAIN = "Nothing else has to be installed: Palyra brings the assembler."


def project_files(
    skill_id: str, language: Language, *, templates: Mapping[str, str], sdk: Mapping[str, str]
) -> dict[str, str]:
    """Place in the project → text. `sdk` has the files that `LANGUAGES` names. Raises SkillRefused for a bad id."""
    publisher = check_publisher(skill_id.partition(".")[0])
    check_skill_id(skill_id, publisher)
    facts = LANGUAGES[language]
    holes = _holes(skill_id, publisher, language, facts)
    files = {_place(path): fill(text, holes) for path, text in templates.items()}
    return dict(sorted((files | {place: sdk[name] for name, place in facts.sdk}).items()))


def fill(template: str, holes: Mapping[str, str]) -> str:
    return _HOLE.sub(lambda hole: holes[hole[1]], template)


def _place(path: str) -> str:
    return ".gitignore" if path == "gitignore" else path


def _holes(skill_id: str, publisher: str, language: Language, facts: LanguageFacts) -> dict[str, str]:
    name = skill_id.removeprefix(f"{publisher}.")
    return {
        "skill_id": skill_id,
        "publisher": publisher,
        "name": name,
        "crate": skill_id.replace(".", "-"),
        "language": language.value,
        "language_name": facts.name,
        "source": facts.source,
        "fuel": str(facts.fuel),
        "memory": str(facts.memory_bytes),
        "toolchain": toolchain_words(facts),
    }


def toolchain_words(facts: LanguageFacts) -> str:
    if not facts.recipes:
        return _NO_TOOLCHAIN
    names = " or ".join(recipe.tool for recipe in facts.recipes)
    return f"Building needs {names}. In this folder: `{facts.install.format(pip='pip')}`."
