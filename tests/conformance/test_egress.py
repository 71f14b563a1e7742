"""HOST_ALLOWLIST: a program reaches exactly the hosts it was granted, and nothing else by any name, address or trick.

Everything is on the host's own loopback. Each attack is run cold and in a sandbox made ahead, as root where the tests
are, and as another user.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from palyra.model.call import Tier
from palyra.model.host import Guarantee
from palyra.model.outcome import Connection
from tests.conformance.arena import Arena, Result, grant, require
from tests.promises import promise
from tests.servers import BIG_BYTES, Seen, tcp, web

pytestmark = pytest.mark.slow

CLIENT = """
import socket, struct
def fetch(host, port, name=None, timeout=5, family=0, path="/"):
    began = time.monotonic()
    for kind in socket.getaddrinfo(host, port, family, socket.SOCK_STREAM):
        with socket.socket(kind[0], socket.SOCK_STREAM) as s:
            s.settimeout(timeout)
            s.connect(kind[4])
            ending = "Connection: close\\r\\n\\r\\n"
            s.sendall(f"GET {path} HTTP/1.1\\r\\nHost: {name or f'{host}:{port}'}\\r\\n{ending}".encode())
            got = b""
            while data := s.recv(65536):
                got += data
            return got.split(b"\\r\\n", 1)[0].decode() + (" " + str(len(got)) if len(got) > 65536 else "")
def fast(function, *arguments):
    began = time.monotonic()
    result = tried(function, *arguments)
    return result if time.monotonic() - began < 3 else "slow " + str(result)
"""


@pytest.fixture(autouse=True)
def _promised() -> None:
    require(Tier.C, Guarantee.HOST_ALLOWLIST)


@pytest.fixture
def server() -> Iterator[Seen]:
    with web() as seen:
        yield seen


def attack(place: Arena, program: str, *arguments: str, granted: tuple[str, ...]) -> Result:
    return place.attack(CLIENT + textwrap.dedent(program), *arguments, net=grant(*granted))


def verdicts(result: Result) -> list[tuple[str, int, str]]:
    return [(one.host, one.port, one.verdict) for one in result.execution.connections]


# ── what is granted works, with no proxy settings ──


@promise("host-allowlist.granted-name")
def test_a_raw_client_reaches_the_granted_name_and_bytes_are_counted(tier_c: Arena, server: Seen) -> None:
    program = "report([fetch('granted.test', int(sys.argv[1])), fetch('granted.test', int(sys.argv[1]), path='/big')])"
    result = attack(
        tier_c, program, str(server.port), granted=(f"granted.test:{server.port}", f"127.0.0.1:{server.port}")
    )
    hello, big = result.json
    assert hello == "HTTP/1.1 200 OK"
    assert int(big.split()[-1]) > BIG_BYTES
    assert verdicts(result) == [("granted.test", server.port, "allowed")] * 2
    assert result.execution.connections[1].bytes_down > BIG_BYTES
    assert Guarantee.HOST_ALLOWLIST in result.plan.guarantees


@promise("host-allowlist.granted-name")
@pytest.mark.parametrize("proxy", [False, True], ids=["transparent", "proxy"])
def test_curl_reaches_the_granted_name(tier_c: Arena, server: Seen, proxy: bool) -> None:
    curl = shutil.which("curl", path="/usr/bin:/bin")
    if curl is None:
        pytest.skip("there is no curl")
    url = f"http://granted.test:{server.port}/"
    words = [curl, "-sS", *(() if proxy else ("--noproxy", "*")), url]
    net = grant(f"granted.test:{server.port}", f"127.0.0.1:{server.port}")
    result = tier_c.run(*words, net=net, env=(("PATH", "/usr/bin:/bin"), ("HOME", "/tmp")))
    assert (result.output.stdout, result.output.stderr) == ("hello from the granted host\n", "")
    assert verdicts(result) == [("granted.test", server.port, "allowed")]


@promise("host-allowlist.granted-name")
def test_git_clones_over_http(tier_c: Arena, tmp_path: Path) -> None:
    git = shutil.which("git", path="/usr/bin:/bin")
    if git is None:
        pytest.skip("there is no git")
    make_repository(tmp_path, git)
    with web(tmp_path) as seen:
        net = grant(f"granted.test:{seen.port}", f"127.0.0.1:{seen.port}")
        url = f"http://granted.test:{seen.port}/repository.git"
        env = (("PATH", "/usr/bin:/bin"), ("HOME", "/tmp"))
        result = tier_c.run(git, "clone", "--quiet", url, "copy", net=net, env=env)
    assert (result.execution.exit_code, result.output.stderr) == (0, "")
    assert (tier_c.workspace / "copy" / "file").read_text() == "content\n"


def test_git_clones_over_its_own_protocol(tier_c: Arena, tmp_path: Path) -> None:
    git = shutil.which("git", path="/usr/bin:/bin")
    if git is None:
        pytest.skip("there is no git")
    make_repository(tmp_path, git)
    with git_daemon(tmp_path, git) as port:
        env = (("PATH", "/usr/bin:/bin"), ("HOME", "/tmp"))
        url = f"git://granted.test:{port}/repository.git"
        result = tier_c.run(git, "clone", "--quiet", url, "copy", net=grant(*at_port(port)), env=env)
        named = (*env, ("GIT_OVERRIDE_VIRTUAL_HOST", "other.test"))
        other = tier_c.run(git, "ls-remote", url, net=grant(*at_port(port)), env=named)
    assert (result.execution.exit_code, result.output.stderr) == (0, "")
    assert (tier_c.workspace / "copy" / "file").read_text() == "content\n"
    assert other.execution.exit_code != 0
    assert verdicts(other)[-1] == ("other.test", 9418, "denied")


@contextmanager
def git_daemon(folder: Path, git: str) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        words = [git, "daemon", "--inetd", "--export-all", f"--base-path={folder}", str(folder)]

        def serve() -> None:
            with suppress(OSError):  # the listener was closed
                while True:
                    client, _ = listener.accept()
                    with client:
                        subprocess.run(words, stdin=client, stdout=client, stderr=subprocess.DEVNULL, check=False)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def make_repository(folder: Path, git: str) -> None:
    """One commit, served as plain files."""
    work, bare = folder / "work", folder / "repository.git"
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    for who in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{who}_NAME": "somebody", f"GIT_{who}_EMAIL": "somebody@example.test"}

    def run(*words: str) -> None:
        subprocess.run([git, *words], check=True, env=env, capture_output=True)

    run("init", "--quiet", str(work))
    (work / "file").write_text("content\n")
    run("-C", str(work), "add", "file")
    run("-C", str(work), "commit", "--quiet", "--message", "one")
    run("clone", "--quiet", "--bare", str(work), str(bare))
    run("-C", str(bare), "update-server-info")


@promise("host-allowlist.granted-address")
def test_a_host_that_speaks_first_and_a_granted_address_are_reached(tier_c: Arena) -> None:
    program = """
    def echo(host, port):
        with socket.create_connection((host, port), 5) as s:
            first = s.recv(100)
            s.sendall(b"SSH-2.0-question\\r\\n")
            s.shutdown(socket.SHUT_WR)
            return (first + s.recv(100)).decode() + ("" if s.recv(1) == b"" else " and more")
    port = int(sys.argv[1])
    report([echo("granted.test", port), echo("127.0.0.1", port)])
    """
    with tcp(greeting=b"SSH-2.0-welcome\r\n") as seen:
        result = attack(
            tier_c, program, str(seen.port), granted=(f"granted.test:{seen.port}", f"127.0.0.1:{seen.port}")
        )
    assert result.json == ["SSH-2.0-welcome\r\nSSH-2.0-question\r\n"] * 2
    assert verdicts(result) == [("granted.test", seen.port, "allowed"), ("127.0.0.1", seen.port, "allowed")]


SENDS_MAIL = """
def talk(host, port):
    with socket.create_connection((host, port), 5) as s:
        s.sendall(b"%s" + b"\\r\\nMAIL FROM:<a@b.test>\\r\\n")
        s.shutdown(socket.SHUT_WR)
        return s.makefile("rb").read().decode("latin-1")
report(tried(talk, "granted.test", int(sys.argv[1])))
"""


@promise("host-allowlist.mail")
@pytest.mark.parametrize("start", [r"SSH-2.0-x", r"*1\\r\\n$4\\r\\nPING", r"EHLO me", r"\\x16\\x03\\x01"])
def test_a_mail_server_on_a_granted_port_is_not_spoken_to(tier_c: Arena, start: str) -> None:
    with tcp(greeting=b"220 mail.test ESMTP\r\n") as seen:
        result = attack(tier_c, SENDS_MAIL % start, str(seen.port), granted=at_port(seen.port))
    assert "MAIL" not in str(result.json)
    assert ("granted.test", seen.port, "denied") in verdicts(result)


@promise("host-allowlist.known-protocols")
def test_a_host_granted_raw_is_spoken_to_in_any_protocol(tier_c: Arena) -> None:
    with tcp(greeting=b"220 mail.test ESMTP\r\n") as seen:
        name, address = at_port(seen.port)
        result = attack(tier_c, SENDS_MAIL % "EHLO me", str(seen.port), granted=(f"{name} raw", address))
    assert "MAIL FROM:<a@b.test>" in str(result.json)
    assert verdicts(result) == [("granted.test", seen.port, "allowed")]


def at_port(port: int) -> tuple[str, str]:
    return f"granted.test:{port}", f"127.0.0.1:{port}"


@promise("host-allowlist.granted-address")
def test_a_granted_ipv6_address_is_reached(tier_c: Arena) -> None:
    program = "report(tried(fetch, '::1', int(sys.argv[1]), f'[::1]:{sys.argv[1]}'))"
    with web(address="::1") as server:
        result = attack(tier_c, program, str(server.port), granted=(f"[::1]:{server.port}",))
    assert result.json == "HTTP/1.1 200 OK"


@promise("host-allowlist.suffix")
def test_names_below_a_granted_suffix_are_reached_and_the_bare_suffix_is_not(tier_c: Arena, server: Seen) -> None:
    program = "report([tried(fetch, host, int(sys.argv[1])) for host in ('a.sub.test', 'b.sub.test', 'sub.test')])"
    granted = (f"*.sub.test:{server.port}", f"127.0.0.1:{server.port}")
    assert attack(tier_c, program, str(server.port), granted=granted).json == [
        "HTTP/1.1 200 OK",
        "HTTP/1.1 200 OK",
        "gaierror",
    ]


@promise("host-allowlist.own-loopback")
def test_the_programs_own_loopback_stays_its_own(tier_c: Arena, server: Seen) -> None:
    """A development server on the very port that is granted elsewhere."""
    program = """
    import threading
    port = int(sys.argv[1])
    own = socket.create_server(("127.0.0.1", port))
    def serve():
        peer, _ = own.accept()
        peer.recv(1000)
        peer.sendall(b"HTTP/1.1 299 OWN\\r\\n\\r\\n")
        peer.close()
    threading.Thread(target=serve, daemon=True).start()
    report([fetch("127.0.0.1", port), tried(fetch, "granted.test", port)])
    """
    result = attack(tier_c, program, str(server.port), granted=(f"granted.test:{server.port}",))
    assert result.json == ["HTTP/1.1 299 OWN", "ECONNRESET"]
    assert verdicts(result) == [("granted.test", server.port, "denied")]


# ── everything else fails fast ──


@promise("host-allowlist.other-destinations")
def test_every_other_way_out_fails_fast_and_names_are_recorded(tier_c: Arena, server: Seen) -> None:
    name = f"palyra-test-{os.urandom(8).hex()}"
    with tcp() as beside, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind("\0" + name)
        abstract.listen()
        program = """
        port, beside, name = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
        def udp(address):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
                return s.sendto(b"out", address)
        def connect(family, address, kind=socket.SOCK_STREAM, protocol=0):
            with socket.socket(family, kind, protocol) as s:
                s.settimeout(5)
                s.connect(address)
                return "connected"
        report({
            "other name": fast(fetch, "evil.test", port),
            "a name that leads to the same address": fast(fetch, "other.test", port),
            "other port of the granted name": fast(fetch, "granted.test", beside),
            "port 80 of the granted name": fast(fetch, "granted.test", 80),
            "other port of the granted address": fast(fetch, "127.0.0.1", beside),
            "private address": fast(fetch, "10.0.0.1", port),
            "public address": fast(fetch, "192.0.2.1", 443),
            "metadata": fast(fetch, "169.254.169.254", 80),
            "synthetic address of nobody": fast(fetch, "198.18.7.7", port),
            "broadcast": fast(udp, ("255.255.255.255", 9)),
            "udp to the granted address": fast(connect, socket.AF_INET, ("192.0.2.1", port), socket.SOCK_DGRAM),
            "ipv6 loopback": fast(connect, socket.AF_INET6, ("::1", beside)),
            "ipv6 outside": fast(connect, socket.AF_INET6, ("2001:db8::1", 443)),
            "v4 mapped": fast(connect, socket.AF_INET6, ("::ffff:10.0.0.1", 80)),
            "abstract": fast(connect, socket.AF_UNIX, "\\0" + name),
            "raw": fast(connect, socket.AF_INET, ("192.0.2.1", 0), socket.SOCK_RAW, 1),
            "netlink": fast(connect, socket.AF_NETLINK, (0, 0), socket.SOCK_RAW, 16),
            "packet": fast(socket.socket, 17, socket.SOCK_RAW),
            "vsock": fast(socket.socket, 40, socket.SOCK_STREAM),
            "multipath": fast(connect, socket.AF_INET, ("192.0.2.1", 443), socket.SOCK_STREAM, 262),
            "decimal": fast(fetch, "167772161", 80),
            "short": fast(fetch, "10.1", 80),
        })
        """
        granted = (f"granted.test:{server.port}", f"127.0.0.1:{server.port}")
        result = attack(tier_c, program, str(server.port), str(beside.port), name, granted=granted)
        reached = beside.connections
    assert result.json == {
        "other name": "gaierror",
        "a name that leads to the same address": "gaierror",
        "other port of the granted name": "ECONNREFUSED",
        "port 80 of the granted name": "ECONNREFUSED",
        "other port of the granted address": "ECONNREFUSED",
        "private address": "ENETUNREACH",
        "public address": "ENETUNREACH",
        "metadata": "ENETUNREACH",
        "synthetic address of nobody": "ECONNREFUSED",
        "broadcast": "ENETUNREACH",
        "udp to the granted address": "ENETUNREACH",
        "ipv6 loopback": "ECONNREFUSED",
        "ipv6 outside": "ENETUNREACH",
        "v4 mapped": "ENETUNREACH",
        "abstract": "ECONNREFUSED",
        "raw": "EPERM",
        "netlink": "EPROTONOSUPPORT",
        "packet": "EAFNOSUPPORT",
        "vsock": "EAFNOSUPPORT",
        "multipath": "EPROTONOSUPPORT",
        "decimal": "ENETUNREACH",
        "short": "ENETUNREACH",
    }
    assert reached == 0
    assert server.connections == 0
    assert set(verdicts(result)) == {
        ("evil.test", 53, "denied"),
        ("other.test", 53, "denied"),
        ("*", 0, "unreachable"),
    }


@promise("host-allowlist.other-destinations")
def test_on_the_usual_ports_every_other_address_is_refused_and_recorded(tier_c: Arena) -> None:
    """One listener serves a low port on all addresses; which one was dialled still decides."""
    program = """
    places = [("127.0.0.1", 80), ("127.8.8.8", 443), ("198.18.99.99", 80), ("198.18.0.16", 8080)]
    report([tried(fetch, host, port, "granted.test") for host, port in places])
    """
    result = attack(tier_c, program, granted=("granted.test",))
    assert result.json == ["ECONNRESET", "ECONNRESET", "ECONNRESET", "ECONNREFUSED"]
    assert verdicts(result) == [
        ("127.0.0.1", 80, "denied"),
        ("127.8.8.8", 443, "denied"),
        ("198.18.99.99", 80, "denied"),
    ]


@promise("host-allowlist.fronting")
def test_a_host_header_or_sni_of_another_name_is_refused(tier_c: Arena, server: Seen) -> None:
    program = """
    import ssl
    port = int(sys.argv[1])
    def hello(name):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with socket.create_connection(("granted.test", port), 5) as s:
            with context.wrap_socket(s, server_hostname=name):
                return "shaken"
    def tried(function, *arguments):
        try:
            return function(*arguments)
        except ssl.SSLError as error:
            return error.reason
    report([
        tried(fetch, "granted.test", port, "evil.test"),
        tried(fetch, "granted.test", port, f"granted.test:{port + 1}"),
        tried(hello, "evil.test"),
        tried(hello, None),
    ])
    """
    granted = (f"granted.test:{server.port}", f"127.0.0.1:{server.port}")
    result = attack(tier_c, program, str(server.port), granted=granted)
    assert result.json[:2] == ["HTTP/1.1 403 Forbidden", "HTTP/1.1 403 Forbidden"]
    assert result.json[2:] == ["TLSV1_ALERT_ACCESS_DENIED", "TLSV1_ALERT_ACCESS_DENIED"]
    assert server.requests == []
    assert all(verdict != "failed" for _, _, verdict in verdicts(result))


@promise("host-allowlist.fronting")
def test_a_request_in_no_usual_form_does_not_reach_another_name_of_the_granted_host(
    tier_c: Arena, server: Seen
) -> None:
    """Servers take them: this one reads headers behind a line without a version."""
    program = """
    def ask(*pieces):
        with socket.create_connection(("granted.test", int(sys.argv[1])), 5) as s:
            s.settimeout(5)
            for piece in pieces:
                s.sendall(piece)
                time.sleep(0.4)
            return s.recv(100).decode()
    report([
        tried(ask, b"GET /\\r\\nHost: evil.test\\r\\n\\r\\n"),
        tried(ask, b"GET /\\r\\n", b"A: b\\r\\n", b"Host: evil.test\\r\\n\\r\\n"),
        tried(ask, b"\\x1cGET /\\0 HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n"),
        tried(ask, b"GET", b" /\\r", b"\\nhost:evil.test\\n\\n"),
    ])
    """
    granted = (f"granted.test:{server.port}", f"127.0.0.1:{server.port}")
    result = attack(tier_c, program, str(server.port), granted=granted)
    assert not any("hello" in said for said in result.json)
    assert [headers["host"] for _, _, headers in server.requests if "host" in headers] == []
    assert verdicts(result).count(("granted.test", server.port, "denied")) == 4


@promise("host-allowlist.proxy")
def test_the_proxy_refuses_what_is_not_granted_in_every_protocol(tier_c: Arena, server: Seen) -> None:
    program = """
    port = int(sys.argv[1])
    def ask(data):
        with socket.create_connection(("127.0.0.1", 1023), 5) as s:
            s.sendall(data)
            got = s.recv(200)
            if got == b"\\5\\0":
                got += s.recv(200)
            return got.split(b"\\r\\n")[0].decode("latin-1")
    target = f"granted.test:{port}"
    socks = lambda name, at: b"\\5\\1\\0" + b"\\5\\1\\0\\3" + bytes([len(name)]) + name.encode() + struct.pack("!H", at)
    report([
        ask(f"GET http://{target}/ HTTP/1.1\\r\\nHost: {target}\\r\\n\\r\\n".encode()),
        ask(f"CONNECT {target} HTTP/1.1\\r\\nHost: {target}\\r\\n\\r\\n".encode()),
        ask(b"GET http://evil.test/ HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n"),
        ask(b"CONNECT evil.test:443 HTTP/1.1\\r\\nHost: evil.test:443\\r\\n\\r\\n"),
        ask(b"CONNECT 169.254.169.254:80 HTTP/1.1\\r\\nHost: 169.254.169.254\\r\\n\\r\\n"),
        ask(b"CONNECT 0x7f000001:80 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n"),
        ask(socks("evil.test", 443))[2:4],
        ask(b"\\4\\1\\0\\x50\\x7f\\0\\0\\1\\0")[1:2],
    ])
    """
    granted = (f"granted.test:{server.port}", f"127.0.0.1:{server.port}")
    result = attack(tier_c, program, str(server.port), granted=granted)
    answers = result.json
    assert answers[0] == "HTTP/1.1 200 OK"
    assert answers[1] == "HTTP/1.1 200 Connection established"
    assert [answer.split()[1] for answer in answers[2:5]] == ["403", "403", "403"]
    assert answers[5].split()[1] in ("400", "403")
    assert answers[6] == "\x05\x02"
    assert answers[7] == "\x5b"
    assert ("evil.test", 443, "denied") in verdicts(result)
    assert ("169.254.169.254", 80, "denied") in verdicts(result)


@promise("host-allowlist.private-address")
def test_a_granted_name_that_leads_to_a_private_address_is_refused_without_the_address(
    tier_c: Arena, server: Seen
) -> None:
    result = attack(
        tier_c,
        "report(tried(fetch, 'granted.test', int(sys.argv[1])))",
        str(server.port),
        granted=(f"granted.test:{server.port}",),
    )
    assert result.json == "ECONNRESET"
    assert server.connections == 0
    [one] = result.execution.connections
    assert (one.host, one.verdict) == ("granted.test", "denied")
    assert "127.0.0.1" in one.why


@promise("host-allowlist.listeners")
def test_our_listeners_cannot_be_taken_over_or_reached_from_outside(tier_c: Arena, server: Seen) -> None:
    program = """
    def bind(kind, port):
        with socket.socket(socket.AF_INET, kind) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            s.bind(("127.0.0.1", port))
            return "bound"
    import fcntl
    def down():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            return fcntl.ioctl(s, 0x8914, struct.pack("16sH14x", b"lo", 0))
    report([
        tried(bind, socket.SOCK_DGRAM, 53), tried(bind, socket.SOCK_STREAM, 1023), tried(down),
        sorted(os.listdir("/proc/self/fd"))[:4],
    ])
    """
    granted = (f"granted.test:{server.port}",)
    result = attack(tier_c, program, granted=granted)
    assert result.json == ["EACCES", "EACCES", "EPERM", ["0", "1", "2", "3"]]
    with socket.socket() as outside:
        outside.settimeout(2)
        assert outside.connect_ex(("127.0.0.1", 1023)) != 0


@promise("host-allowlist.closed-connections")
def test_nothing_stays_open_when_the_call_is_over(tier_c: Arena, server: Seen) -> None:
    before = len(os.listdir("/proc/self/fd"))
    program = (
        "c = [socket.create_connection(('granted.test', int(sys.argv[1])), 5) for _ in range(20)]\n"
        "asked = f'GET / HTTP/1.1\\r\\nHost: granted.test:{sys.argv[1]}\\r\\n\\r\\n'.encode()\n"
        "for one in c: one.sendall(asked)\n"
        "report(sum(len(one.recv(1)) for one in c))"  # answered, so each was judged before the program ended
    )
    granted = (f"granted.test:{server.port}", f"127.0.0.1:{server.port}")
    result = attack(tier_c, program, str(server.port), granted=granted)
    assert result.json == 20
    assert [one.verdict for one in result.execution.connections] == ["allowed"] * 20
    assert isinstance(result.execution.connections[0], Connection)
    assert len(os.listdir("/proc/self/fd")) <= before + 25  # the server's own side of them, until its threads notice
