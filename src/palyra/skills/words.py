"""What a skill asks for, in words for a person, and what one version asks for beyond another."""

from __future__ import annotations

from collections.abc import Iterator

from palyra.skills.capabilities import VAULT_SCOPE, Capabilities, SecretScope


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
        f"Uses up to {new.fuel_budget} fuel.": (new.fuel_budget or 0) > (old.fuel_budget or 0),
    }
    return {sentence for sentence, more in figures.items() if more}
