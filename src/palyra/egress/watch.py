"""Which programs are watched though nothing is granted: those that go to the network by themselves.

`pip install left-pad` names no host, so nobody can say beforehand what it would reach. With listeners that refuse
everything inside its empty network it fails as fast as without, and the outcome can name the host that was missing.
In a shell's code the same programs count. Only advice depends on this list; what can be reached does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from palyra.egress.preflight import TAKES_HOSTS
from palyra.late import late
from palyra.model.face import NetFace
from palyra.model.net import EgressMode, NetGrant

INSTALLERS = frozenset(
    """pip pipx uv uvx poetry pdm conda mamba npm npx yarn pnpm bun corepack cargo rustup go gem bundle bundler composer
    mvn gradle gradlew sbt lein mix rebar3 cabal stack opam dotnet nuget apt apt-get dnf yum apk brew nix helm terraform
    docker podman skopeo gh glab aws gcloud az""".split()
)
NO_RETRIES = (
    ("CARGO_NET_RETRY", "0"),
    ("PIP_RETRIES", "0"),
    ("UV_HTTP_RETRIES", "0"),
    ("npm_config_fetch_retries", "0"),
)
"""How package managers are asked to give up at the first failure."""
SHELLS = frozenset("bash sh dash zsh ksh ash".split())
_VERSION = late(r"[0-9.]+$")
_COMMAND = late(
    r"(?:^|[;&|()`{}\n])[ \t]*(?:(?:if|while|until|then|do|else|elif|exec|time|env|nice|!|\w+=\S*)[ \t]+)*"
    r"([\w./+-]+)([^;&|()`{}\n]*)"
)
"""A shell's command and its words, as far as letters tell: advice does not need more. What stands before a
command is on its line, or each of many empty lines would be read to the last of them."""
MAX_CODE = 1 << 16


def watching_face(grant: NetGrant, program: str, args: Sequence[str], *, names: bool = False) -> NetFace | None:
    """A name server and a proxy that refuse everything and write it down; None for programs that stay at home. `names`:
    its arguments name a host, in code that nobody refused for it."""
    if grant.mode is not EgressMode.STRICT or grant.hosts:
        return None
    return NetFace() if names or goes_out(program, args) else None


def goes_out(program: str, args: Sequence[str]) -> bool:
    name = _VERSION.sub("", program.rpartition("/")[2]) or program
    if name in SHELLS:
        code = next((arg for option, arg in pairwise(args) if option[:1] == "-" and option[-1:] == "c"), "")
        commands = _COMMAND.finditer(code[:MAX_CODE])
        return any(goes_out(one[1], one[2].split()) for one in commands if one[1].rpartition("/")[2] not in SHELLS)
    if name == "git":
        from palyra.egress.git_words import may_reach

        return may_reach(args)
    if name == "python" and "-m" in args[:-1]:
        return args[list(args).index("-m") + 1] in INSTALLERS
    return name in INSTALLERS or name in TAKES_HOSTS
