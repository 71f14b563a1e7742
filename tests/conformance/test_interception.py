"""Credentials for a marked host: added outside the sandbox, on that host alone, seen nowhere inside.

TLS is ended by an authority that only this sandbox trusts; the connection outside is verified as any other.
"""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from palyra.egress.credentials import Credential
from palyra.egress.dial import Dialer
from palyra.egress.hosts import parse_pattern
from palyra.egress.server.serving import EgressServer, Interception
from palyra.launch.process import ProcessExecutor
from palyra.model.call import Tier
from palyra.model.face import Trust
from palyra.model.host import Guarantee
from palyra.sandbox.planner import plan_job
from palyra.wiring.egress import Interceptor
from tests.certificates import tls_web
from tests.conformance.arena import NAMES, PRELUDE, PYTHON, Arena, Kept, Result, grant, host, require
from tests.promises import promise
from tests.servers import Seen, web

pytestmark = pytest.mark.slow

TOKEN = "Bearer the-secret-of-the-vault"


@pytest.fixture(autouse=True)
def _promised() -> None:
    require(Tier.C, Guarantee.HOST_ALLOWLIST)


@pytest.fixture
def remote() -> Iterator[tuple[Seen, bytes]]:
    with tls_web("granted.test") as made:
        yield made


class Marked:
    """An executor whose egress server ends TLS of granted.test at one port."""

    def __init__(self, port: int, certificate: bytes) -> None:
        import time

        pattern = parse_pattern(f"granted.test:{port}")
        self.net = grant(f"granted.test:{port}", f"127.0.0.1:{port}")
        self._interceptor = Interceptor((pattern,), lambda: int(time.time() * 1000))
        self._certificate = certificate
        self.credentials = (Credential(pattern=pattern, header="Authorization", value=TOKEN),)

    @property
    def trust(self) -> Trust:
        trust = self._interceptor.trust_for(self.net)
        assert trust is not None
        return trust

    def interception(self, authority: bytes) -> Interception:
        context = ssl.create_default_context(cadata=self._certificate.decode())
        context.set_alpn_protocols(["http/1.1"])
        own = self._interceptor.interception(authority)
        assert own is not None
        return replace(own, upstream=context)

    def run(self, place: Arena, *words: str, credentials: Sequence[Credential] | None = None) -> Result:
        async def whole() -> Result:
            executor = ProcessExecutor(host(), egress=EgressServer(Dialer(NAMES), interception=self.interception))
            plan = plan_job(place.job(*words, net=self.net, trust=self.trust), host())
            output = Kept()
            bound = self.credentials if credentials is None else credentials
            return Result(await executor.run(plan, output, credentials=bound), plan, output)

        return asyncio.run(whole())


@promise("egress.injected-credentials")
def test_curl_gets_an_answer_that_needed_the_token_and_never_held_it(
    place_c: Arena, remote: tuple[Seen, bytes]
) -> None:
    curl = shutil.which("curl", path="/usr/bin:/bin")
    if curl is None:
        pytest.skip("there is no curl")
    seen, certificate = remote
    marked = Marked(seen.port, certificate)
    result = marked.run(place_c, curl, "-sS", "-H", "authorization: mine", f"https://granted.test:{seen.port}/")
    assert (result.output.stdout, result.output.stderr) == ("hello from the granted host\n", "")
    [(_, _, headers)] = seen.requests
    assert headers["authorization"] == TOKEN
    assert TOKEN not in result.output.stdout + repr(result.plan) + str(result.plan.as_json())


def test_python_trusts_the_sandboxes_own_authority_and_the_host_is_verified_outside(
    place_c: Arena, remote: tuple[Seen, bytes]
) -> None:
    seen, certificate = remote
    program = (
        "import urllib.request, os\n"
        "for name in list(os.environ):\n    name.lower().endswith('_proxy') and os.environ.pop(name)\n"
        f"report(urllib.request.urlopen('https://granted.test:{seen.port}/').read().decode())\n"
    )
    result = Marked(seen.port, certificate).run(place_c, PYTHON, "-S", "-c", PRELUDE + program)
    assert result.json == "hello from the granted host\n"
    with tls_web("granted.test") as (_, another):
        refused = Marked(seen.port, another).run(place_c, PYTHON, "-S", "-c", PRELUDE + program)
    assert refused.output.stdout == ""
    assert len(seen.requests) == 1, "a host whose certificate does not hold was sent a request"


@promise("egress.injected-credentials")
def test_the_token_goes_to_its_host_alone(place_c: Arena, remote: tuple[Seen, bytes]) -> None:
    """Not to another granted host, not along a redirect, not in the clear."""
    curl = shutil.which("curl", path="/usr/bin:/bin")
    if curl is None:
        pytest.skip("there is no curl")
    seen, certificate = remote
    with web() as other:
        marked = Marked(seen.port, certificate)
        marked.net = grant(
            *(f"{name}:{seen.port}" for name in ("granted.test", "127.0.0.1")),
            *(f"{name}:{other.port}" for name in ("other.test", "127.0.0.1")),
        )
        url = f"https://granted.test:{seen.port}/to?http://other.test:{other.port}/"
        result = marked.run(place_c, curl, "-sS", "--location", url)
    assert result.output.stdout == "hello from the granted host\n"
    [(_, _, headers)] = other.requests
    assert "authorization" not in headers


@promise("egress.injected-credentials")
def test_the_authority_signs_for_marked_hosts_only_and_is_trusted_nowhere_outside(remote: tuple[Seen, bytes]) -> None:
    seen, certificate = remote
    trust = Marked(seen.port, certificate).trust
    context = ssl.create_default_context()
    context.load_verify_locations(cadata=trust.bundle.decode())
    mine = [one for one in context.get_ca_certs() if "Palyra" in str(one["subject"])]
    assert len(mine) == 1
    outside = ssl.create_default_context().get_ca_certs()
    assert not [one for one in outside if "Palyra" in str(one["subject"])]
