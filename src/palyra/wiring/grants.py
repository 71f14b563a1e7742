"""The operator's grant for one call or run, from plain words: what every door that takes one reads it with.

Rules: a word that is none is refused, never guessed; folders are resolved to where they really lead. Not here: who may
give a grant (the door), what policies make of it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from palyra.config.tool_call import EGRESS_ALIASES
from palyra.egress.hosts import parse_grant
from palyra.engine.runs import check_text
from palyra.errors import Reason, Rejected
from palyra.model.call import OperatorGrant, TierChoice
from palyra.model.net import EgressMode

EGRESS_WORDS = (*(mode.value for mode in EgressMode), *EGRESS_ALIASES)


def grant(
    *,
    executables: Sequence[str] = (),
    interpreters: bool = False,
    read_roots: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    egress: str | None = None,
    hosts: Sequence[str] = (),
    tier: str | None = None,
    root_tier_b: bool = False,
) -> OperatorGrant:
    """The operator's grant for a run, from plain words; the command line's --allow… flags are the same thing."""
    variables = [text for pair in (env or {}).items() for text in pair]
    lists = (("executable", executables), ("read root", read_roots), ("host", hosts), ("variable", variables))
    for name, texts in lists:
        if not isinstance(texts, (tuple, list)):  # a string would be taken letter by letter
            raise Rejected(Reason.BAD_ARGUMENTS, f"Give {name}s as a tuple.", f'One {name}: ("…",).')
        for text in texts:
            check_text(name, text)
    if egress == "block_all" and hosts:
        raise Rejected(
            Reason.BAD_ARGUMENTS, "block_all and granted hosts exclude each other.", "Leave one of them out."
        )
    return OperatorGrant(
        executables=tuple(executables),
        interpreters=interpreters is True,
        read_roots=tuple(os.path.realpath(root) for root in read_roots),
        env=tuple(sorted((env or {}).items())),
        egress=egress_word(egress),
        block_all=egress == "block_all",
        hosts=tuple(parse_grant(host) for host in hosts),
        tier=tier_word(tier),
        root_tier_b=root_tier_b is True,
    )


def egress_word(text: str | None) -> EgressMode | None:
    return EgressMode(EGRESS_ALIASES.get(text, text)) if _is_word("egress", text, EGRESS_WORDS) and text else None


def tier_word(text: str | None) -> TierChoice | None:
    return TierChoice(text) if _is_word("tier", text, tuple(TierChoice)) and text else None


def _is_word(name: str, text: object, words: tuple[str, ...]) -> bool:
    if text is not None and text not in words:
        raise Rejected(Reason.BAD_ARGUMENTS, f"There is no such {name}.", f"Write {name} as one of {', '.join(words)}.")
    return text is not None
