"""What a skill asks for, in words for a person, and what one version asks for beyond another."""

from __future__ import annotations

from collections.abc import Iterator

from palyra.skills.capabilities import COMPONENT_FUEL, CORE_FUEL, VAULT_SCOPE, Capabilities, SecretScope
from palyra.skills.manifest import SkillManifest


def capability_words(asked: Capabilities) -> tuple[str, ...]:
    """One sentence for each wish; none at all is a sentence too."""
    return tuple(_words(asked)) or ("It asks for nothing outside itself.",)


def _words(asked: Capabilities) -> Iterator[str]:
    for host in asked.http_egress_allowlist:
        plain = " without encryption" if host.startswith("http://") else ""
        yield f"Sends requests to {host.removeprefix('http://')}{plain}."
    for scope in asked.secrets:
        yield from _secret_words(scope)
    for root in asked.read_roots:
        if root not in asked.write_roots:
            yield f"Reads what is kept under {root} in its own storage."
    for root in asked.write_roots:
        yield f"Keeps data under {root} in its own storage."
    for channel in asked.channels:
        yield f"Sends to the channel {channel}."
    for device in asked.device_capabilities:
        yield f"Wants the device capability {device}."


def _secret_words(scope: SecretScope) -> Iterator[str]:
    whose = "of the vault" if scope.scope == VAULT_SCOPE else f"kept for {scope.scope.partition(':')[2]}"
    for key in scope.key_names:
        verb = "Reads the value of" if key in scope.raw_key_names else "Has requests carry"
        yield f"{verb} the secret {key} {whose}."


def differences(before: Capabilities, after: Capabilities) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(what is asked for beyond `before`, what no longer is), quotas among them."""
    old, new = _items(before), _items(after)
    more, less = _quotas(before, after), _quotas(after, before)
    return tuple(sorted((new - old) | more)), tuple(sorted((old - new) | less))


def _items(asked: Capabilities) -> set[str]:
    return {*_words(asked), *(f"Wildcards in {family}." for family in asked.wildcard_opt_in)}


def _quotas(before: Capabilities, after: Capabilities) -> set[str]:
    """What `after` may use that `before` may not."""
    old, new = before.quotas, after.quotas
    figures = {
        f"Runs up to {new.wall_clock_timeout_ms} ms.": new.wall_clock_timeout_ms > old.wall_clock_timeout_ms,
        f"Uses up to {new.max_memory_bytes} bytes of memory.": new.max_memory_bytes > old.max_memory_bytes,
        f"Uses up to {new.fuel_budget or 'the usual'} fuel.": _has_more_fuel(old.fuel_budget, new.fuel_budget),
    }
    return {sentence for sentence, more in figures.items() if more}


def _has_more_fuel(old: int | None, new: int | None) -> bool:
    """None is what its kind of module has by default, which may be more than a figure was."""
    if old is None and new is None:
        return False
    return (COMPONENT_FUEL if new is None else new) > (CORE_FUEL if old is None else old)


def loosened(before: SkillManifest, after: SkillManifest) -> tuple[str, ...]:
    """What the older version had people asked or told about and the newer one has not; and tools that are new."""
    known = {tool.id: tool for tool in before.tools}
    found = []
    for tool in after.tools:
        was = known.get(tool.id)
        if was is None:
            found.append(f"Brings the new tool {tool.id}.")
            continue
        if was.requires_approval and not tool.requires_approval:
            found.append(f"No longer asks a person before each call of {tool.id}.")
        if was.default_sensitive and not tool.default_sensitive:
            found.append(f"No longer marks {tool.id} as sensitive.")
    if before.review_required and not after.review_required:
        found.append("No longer requires a review of each version.")
    return tuple(found)


def described_anew(before: SkillManifest, after: SkillManifest) -> tuple[str, ...]:
    """Tools of which agents are told something else: that is what they go by."""
    known = {tool.id: (tool.name, tool.description) for tool in before.tools}
    return tuple(
        tool.id for tool in after.tools if tool.id in known and known[tool.id] != (tool.name, tool.description)
    )
