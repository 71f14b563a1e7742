"""Asks the configured model for a candidate's code: one POST to one host, which is all that is granted.

The key comes from the vault and goes to that host alone, over https or to this very machine. What comes back is foreign
text for skills/model_answer. Nothing but the wish and the SDK is sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from palyra.canon import canonical
from palyra.config.skills import SkillsConfig
from palyra.egress.fetch import HttpFetcher
from palyra.egress.fetch_url import parse_url
from palyra.egress.hosts import parse_pattern
from palyra.errors import ConfigError, Rejected
from palyra.model.credential import Credential
from palyra.model.fetch import FetchFailed, FetchOrder, FetchUrl
from palyra.model.net import EgressMode, NetGrant
from palyra.skills.candidate import Written
from palyra.skills.intent import Wish
from palyra.skills.model_answer import MAX_ANSWER_BYTES, chat_request, parse_chat
from palyra.skills.project import ProjectError
from palyra.skills.templates.load import read_sdk
from palyra.vault.store import Vault

TIMEOUT_MS = 120_000
HERE = frozenset({"127.0.0.1", "::1", "localhost"})
BUILDER = "palyra.skills.builder"
"""As a secret's scope names whoever uses it."""


async def ask_model(wish: Wish, config: SkillsConfig, fetcher: HttpFetcher, vault: Vault, *, by: str) -> Written:
    """Raises ProjectError when nothing usable comes back, ConfigError for an endpoint that cannot be one."""
    url = _endpoint(config)
    body = canonical(chat_request(wish, config.builder_model, sdk=read_sdk("palyra.ts")))
    place = f"[{url.host}]:{url.port}" if ":" in url.host else f"{url.host}:{url.port}"
    order = FetchOrder(
        method="POST",
        url=url,
        headers=(("accept", "application/json"), ("accept-encoding", "identity"), ("content-type", "application/json")),
        body=body,
        net=NetGrant(EgressMode.STRICT, (parse_pattern(place),)),
        max_bytes=MAX_ANSWER_BYTES,
        timeout_ms=TIMEOUT_MS,
        max_redirects=0,
    )
    key = _key(config, vault, by=by, place=place)
    try:
        answer = await fetcher.fetch(order, lambda _: key)
    except FetchFailed as failure:
        raise ProjectError(
            f"The model cannot be reached: {failure.detail}", "Check builder_endpoint in [skills]."
        ) from None
    if answer.status != 200 or answer.truncated:
        raise ProjectError(
            f"The model's host answered {answer.status}.", "Check builder_model and builder_secret in [skills]."
        )
    return parse_chat(answer.body, config.builder_model)


def _endpoint(config: SkillsConfig) -> FetchUrl:
    try:
        url = parse_url(config.builder_endpoint.rstrip("/") + "/chat/completions")
    except Rejected as error:
        raise ConfigError(f"builder_endpoint in [skills]: {error.detail}") from None
    if not url.encrypted and url.host not in HERE:
        raise ConfigError("builder_endpoint in [skills] is plain http to another machine.", "Use https.")
    if not config.builder_model:
        raise ConfigError("builder_endpoint in [skills] has no model.", "Name it with builder_model in [skills].")
    return url


def _key(config: SkillsConfig, vault: Vault, *, by: str, place: str) -> Sequence[Credential]:
    if not config.builder_secret:
        return ()
    value = vault.value(config.builder_secret, principal=by, tool=BUILDER)
    if value is None:
        raise ProjectError(
            f"The vault has no secret {config.builder_secret} that the builder may use.",
            f"palyra secrets set {config.builder_secret}, with --scope tool={BUILDER} to keep it from everything else.",
        )
    return (Credential(secret=config.builder_secret, host=place, header="authorization", value=b"Bearer " + value),)
