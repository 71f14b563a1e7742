"""SYSCALL_FILTER: a program lists the interfaces of its own network, and nothing else goes by netlink."""

from __future__ import annotations

import json
import platform

import pytest

from palyra.model.call import Tier
from palyra.model.host import Guarantee
from tests.conformance.arena import OPEN, Arena, grant, require
from tests.conformance.system_calls import CALL, column
from tests.promises import promise
from tests.servers import tcp

pytestmark = pytest.mark.slow

ASK = """
import socket, struct
def ask(kind, body, flags=0x5):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as line:
        line.send(struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0) + body)
        size, answer = struct.unpack_from("=IH", heard := line.recv(65536))
        if answer != 2:
            return answer
        code = -struct.unpack_from("=i", heard, 16)[0]
        return errno.errorcode.get(code, "done")
def attribute(kind, value):
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)
def link(index=1, flags=0, change=0, *more):
    return struct.pack("=BxHiII", 0, 0, index, flags, change) + b"".join(more)
"""
WRITES = """
CREATE = 0x5 | 0x400 | 0x200
address = struct.pack("=BBBBi", 2, 32, 0, 0, 1) + attribute(2, bytes([10, 9, 8, 7])) + attribute(1, bytes([10, 9, 8, 7]))
route = struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 254, 4, 0, 1, 0) + attribute(4, struct.pack("=i", 1))
local = struct.pack("=BBBBBBBBI", 2, 8, 0, 0, 255, 4, 254, 2, 0) + attribute(1, bytes([10, 0, 0, 0])) + attribute(4, struct.pack("=i", 1))
def made(kind):
    return link(0, 0, 0, attribute(3, b"new0\\0"), attribute(18, attribute(1, kind)))
report({
    "add an address": tried(ask, 20, address, CREATE),
    "take an address": tried(ask, 21, struct.pack("=BBBBi", 2, 8, 0, 0, 1) + attribute(2, bytes([127, 0, 0, 1]))),
    "add a default route": tried(ask, 24, route, CREATE),
    "make a network local": tried(ask, 24, local, CREATE),
    "take a route": tried(ask, 25, route),
    "make a link": {kind: tried(ask, 16, made(kind.encode()), CREATE) for kind in
                    ("dummy", "veth", "bridge", "vlan", "tun", "wireguard", "vrf", "no-such-kind")},
    "change a link": tried(ask, 19, link()),
    "take a link": tried(ask, 17, link()),
    "move a link to the first process's network": tried(ask, 16, link(1, 0, 0, attribute(19, struct.pack("=i", 1)))),
    "add a neighbour": tried(ask, 28, struct.pack("=BxHiHBB", 2, 0, 1, 0x80, 0, 0) + attribute(1, bytes([10, 9, 8, 7])), CREATE),
    "add a rule": tried(ask, 32, struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 254, 0, 0, 1, 0), CREATE),
    "add a queue": tried(ask, 36, struct.pack("=BxHiIII", 0, 0, 1, 0x10000, 0xFFFFFFFF, 0) + attribute(1, b"pfifo\\0"), CREATE),
    "add a filter": tried(ask, 44, struct.pack("=BxHiIII", 0, 0, 1, 0, 0xFFFF0000, 0x10003) + attribute(1, b"u32\\0"), CREATE),
    "name another network": tried(ask, 88, struct.pack("=Bxxx", 0) + attribute(1, struct.pack("=i", 7)) + attribute(2, struct.pack("=i", 1)), CREATE),
})
"""  # noqa: E501  # one request a line


@pytest.fixture(autouse=True)
def _claimed() -> None:
    require(Tier.C, Guarantee.SYSCALL_FILTER, Guarantee.NET_ISOLATED)


def every_value(answer: dict[str, object]) -> set[object]:
    inner = [every_value(value) if isinstance(value, dict) else {value} for value in answer.values()]
    return set().union(*inner)


@promise("syscall-filter.netlink")
def test_a_program_lists_the_interfaces_of_its_own_network(tier_c: Arena) -> None:
    """if_nameindex and getifaddrs, which is what `os.networkInterfaces()` of Node and most development servers call."""
    program = """
    import ctypes, socket
    libc, found = ctypes.CDLL(None), ctypes.c_void_p()
    report([socket.if_nameindex(), libc.getifaddrs(ctypes.byref(found)), bool(found)])
    """
    assert tier_c.attack(program).json == [[[1, "lo"]], 0, True]


@promise("syscall-filter.netlink")
def test_every_other_protocol_of_netlink_is_refused_however_it_is_asked_for(tier_c: Arena) -> None:
    """The kernel reads 32 bits of each argument: high bits neither hide a protocol nor make one of ROUTE."""
    program = (
        CALL
        + """
socket, pair = json.loads(sys.argv[1])
HIGH = (0, 1 << 32, 0xDEADBEEF << 32)
KINDS = (2, 3, 3 | 0x80000, 3 | 0x800, 2 | 0x80800)
def verdicts(number, protocols, kinds=KINDS):
    return sorted({call(number, 16 | a, kind | b, protocol | c)
                   for protocol in protocols for kind in kinds for a in HIGH for b in HIGH for c in HIGH})
OTHERS = [*range(1, 64), 255, 256, 1 << 16, 1 << 31, 0xFFFFFFFF]
report([verdicts(socket, OTHERS), verdicts(pair, OTHERS), verdicts(socket, [0]), verdicts(socket, [0], [1, 4, 5, 10]),
        verdicts(pair, [0])])
"""
    )
    numbers = column({"socket": (41, 198), "socketpair": (53, 199)})
    refused, pairs, route, odd_kinds, route_pairs = tier_c.attack(
        program, json.dumps([numbers["socket"], numbers["socketpair"]])
    ).json
    assert refused == pairs == ["EPROTONOSUPPORT"]
    assert route == [""]
    assert odd_kinds == ["ESOCKTNOSUPPORT"]
    assert route_pairs == ["ENOTSUP"]


@promise("syscall-filter.netlink")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86-64 has second numbers for the same calls")
def test_neither_x32_nor_the_calls_of_32_bits_open_another_protocol(tier_c: Arena) -> None:
    """`int 0x80` reaches socketcall (102) and socket (359): the filter kills what comes from another architecture."""
    program = (
        CALL
        + """
import ctypes, mmap, signal
def compat(number, b, c, d):
    code = mmap.mmap(-1, 4096, prot=7)
    code.write(b"\\x53\\x89\\xf8\\x89\\xf3\\x87\\xca\\xcd\\x80\\x5b\\xc3")
    run = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_long] * 4)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    return run(number, b, c, d)
def ended(number, *arguments):
    pid = os.fork()
    if pid == 0:
        compat(number, *arguments)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "lived"
report([call(0x40000000 | 41, 16, 3, 4), call(0x40000000 | 41, 16, 3, 0),
        ended(102, 1, 0, 0), ended(359, 16, 3, 4), ended(359, 16, 3, 0)])
"""
    )
    assert tier_c.attack(program).json == ["ENOSYS", "ENOSYS", "SIGSYS", "SIGSYS", "SIGSYS"]


@promise("syscall-filter.netlink")
def test_nothing_of_the_network_is_changed_by_netlink(tier_c: Arena) -> None:
    """Each is an order that CAP_NET_ADMIN in the network's own user namespace would be obeyed for."""
    found = tier_c.attack(ASK + WRITES).json
    assert every_value(found) == {"EPERM"}, found


@promise("syscall-filter.netlink")
def test_nothing_is_heard_of_other_networks_and_nobody_else_is_spoken_to(tier_c: Arena) -> None:
    """NETLINK_LISTEN_ALL_NSID takes CAP_NET_BROADCAST; messages to another port or group take a privilege too."""
    program = (
        ASK
        + """
def listen_everywhere():
    with socket.socket(16, 3, 0) as line:
        line.setsockopt(270, 8, 1)
        return "heard"
def say(port, groups):
    with socket.socket(16, 3, 0) as line:
        line.sendto(struct.pack("=IHHII", 32, 16, 0x1, 1, 0) + link(), (port, groups))
        return "said"
report([tried(listen_everywhere), tried(say, 1, 0), tried(say, 4242, 0), tried(say, 0, 1)])
"""
    )
    assert tier_c.attack(program).json == ["EPERM"] * 4


@promise("syscall-filter.netlink")
def test_granted_hosts_are_no_leave_to_change_the_network(tier_c: Arena) -> None:
    """There the listeners' own job has changed it, as root of that network, before the program started."""
    with tcp() as server:
        granted = grant(f"granted.test:{server.port}", f"[2001:db8::7]:{server.port}")
        found = tier_c.attack(ASK + WRITES, net=granted).json
    assert every_value(found) == {"EPERM"}, found


@promise("syscall-filter.netlink")
def test_names_are_found_by_programs_that_ask_for_addresses_this_machine_has(tier_c: Arena) -> None:
    """AI_ADDRCONFIG looks at the interfaces: beside a granted IPv6 address there must be an IPv4 one."""
    program = """
    import socket
    def find(host, family):
        return sorted({one[4][0] for one in socket.getaddrinfo(host, 80, family, 1, 0, socket.AI_ADDRCONFIG)})
    report([find("granted.test", socket.AF_INET), find("granted.test", 0), find("localhost", socket.AF_INET)])
    """
    for more in ((), ("[2001:db8::7]:80",)):
        found = tier_c.attack(program, net=grant("granted.test:80", *more)).json
        assert found == [["198.18.0.16"], ["198.18.0.16"], ["127.0.0.1"]]


@promise("syscall-filter.netlink")
def test_where_the_hosts_network_is_shared_there_is_no_netlink(any_tier: Arena) -> None:
    program = "import socket; report([tried(socket.socket, 16, kind, p) for kind in (2, 3) for p in range(32)])"
    assert set(any_tier.attack(program, net=OPEN).json) == {"EAFNOSUPPORT"}
