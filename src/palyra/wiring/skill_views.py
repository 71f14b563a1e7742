"""Skills as JSON, one shape for the command line and the console: pure renderings of standings, manifests, packages."""

from __future__ import annotations

from palyra.canon import Json, digest
from palyra.skills.bundle import Skill, public_text
from palyra.skills.lifecycle import Standing
from palyra.skills.manifest import SkillManifest
from palyra.skills.words import capability_words


def standing_json(standing: Standing) -> dict[str, Json]:
    return {
        "skill_id": standing.skill_id,
        "version": standing.version,
        "status": standing.status.value,
        "reason": standing.reason,
        "publisher": standing.publisher,
        "key_id": standing.key_id,
        "sha256": standing.sha256,
        "installed_by": standing.installed_by,
        "installed_at_unix_ms": standing.installed_unix_ms,
        "reviewed_by": standing.reviewed_by or None,
        "enabled_by": standing.enabled_by or None,
        "enabled_at_unix_ms": standing.enabled_unix_ms or None,
        "override": standing.override or None,
        "changed_by": standing.changed_by,
        "changed_at_unix_ms": standing.changed_unix_ms,
        "journal_index": standing.entry,
    }


def manifest_json(manifest: SkillManifest) -> dict[str, Json]:
    operator = manifest.operator
    return {
        "name": manifest.name,
        "display_name": operator.display_name or manifest.name,
        "summary": operator.summary,
        "categories": list(operator.categories),
        "tags": list(operator.tags),
        "docs_url": operator.docs_url or None,
        "review_required": manifest.review_required,
        "min_palyra": manifest.min_palyra,
        "capabilities": manifest.capabilities.as_json(),
        "capability_words": list(capability_words(manifest.capabilities)),
        "tools": [
            {
                "id": tool.id,
                "name": tool.name,
                "description": tool.description,
                "module": tool.module,
                "requires_approval": tool.requires_approval,
                "default_sensitive": tool.default_sensitive,
                "schema_sha256": digest({"input": tool.input_schema, "output": tool.output_schema}),
            }
            for tool in manifest.tools
        ],
        "generated": None if manifest.builder is None else manifest.builder.source,
    }


def package_json(skill: Skill) -> dict[str, Json]:
    """A package that is not installed, as `palyra skills show FILE` explains it."""
    return {
        "skill_id": skill.manifest.skill_id,
        "version": skill.manifest.version,
        "publisher": skill.manifest.publisher,
        "key_id": skill.key.key_id,
        "public_key": public_text(skill.key),
        "signed_at_unix_ms": skill.binding.signed_unix_ms,
        "sha256": skill.payload_sha256,
        **manifest_json(skill.manifest),
        "files": [
            {"path": path, "bytes": len(skill.files[path]), "sha256": sha256} for path, sha256 in skill.digests.items()
        ],
        "provenance": dict(skill.provenance["buildDefinition"]["externalParameters"]),
    }
