"""`[skills]`: who may enable a skill, what is known to be bad, and how often installed skills are audited again."""

from __future__ import annotations

from palyra.values import dataclass

RANGES: dict[str, tuple[int, int]] = {"audit_hours": (0, 24 * 366)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillsConfig:
    four_eyes: bool = False
    """Whoever installed a skill cannot enable it: another person has to."""
    known_bad_feed: str = ""
    """An absolute file, JSON {"digests": [...], "publishers": [...]}, that audits check skills against. Empty: none. A
    feed that is configured and cannot be read fails every audit."""
    audit_hours: int = 24
    """Hours between audits of enabled skills by the daemon. 0: never."""
    builder: bool = False
    """Experimental: palyra skills propose makes candidates from a description or from what a run did."""
    builder_endpoint: str = ""
    """Where a model writes the code of candidates: the address of an OpenAI-compatible API, such as
    https://models.example.com/v1; plain http only on this machine. Empty: templates only."""
    builder_model: str = ""
    """The model's name there."""
    builder_secret: str = ""
    """The secret of the vault that is the API's key. Empty: none is sent."""
