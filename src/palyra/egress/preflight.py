"""The hosts a call names in its arguments: advice for clear errors; in strict mode the kernel is the wall.

Read are: URLs (several in one argument, with every spelling of their slashes), `user@host:path` and `host:path` for
programs that copy, `--host=…` and the like, comma lists of them, bracketed IPv6, `host:port`, and bare hosts for
programs that are known to take hosts. What could as well be a file (`a.txt`, `main.py:12`, `12:30`) is not taken for a
host. What is meant as a host but cannot be read as one is named as it stands, so that it is refused, not overlooked.
Programs that only read text (`grep 'https://…'`, `git commit -m`) reach nothing and name nothing.

Not here: what is granted (egress/rules), which words of git's are refspecs (git_words).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from palyra.egress.hosts import is_address, parse_host, split_port
from palyra.egress.rules import judge_host
from palyra.errors import Rejected
from palyra.late import late
from palyra.model.net import NamedHost, NetGrant
from palyra.values import dataclass

Found = Iterator[tuple[str, int | None]]

URL_PORTS: dict[str, int | None] = {
    "http": 80, "https": 443, "ftp": 21, "ftps": 990, "ssh": 22, "sftp": 22, "scp": 22, "git": 9418, "git+ssh": 22,
    "git+https": 443, "ws": 80, "wss": 443, "ldap": 389, "ldaps": 636, "postgres": 5432, "postgresql": 5432,
    "mysql": 3306, "redis": 6379, "mongodb": 27017, "amqp": 5672, "rsync": 873, "svn": 3690, "telnet": 23, "smtp": 25,
    "imap": 143, "socks5": 1080, "socks5h": 1080, "docker": 443, "oci": 443, "s3": 443,
}  # fmt: skip
_NO_HOST = frozenset({"file", "data", "about", "mailto", "javascript", "urn"})
_SCHEME = late(r"([a-z][a-z0-9+.-]{0,30}):([/\\]+)", re.IGNORECASE)
_AUTHORITY = late(r"[^/\s?#'\"<>]*")
_SHELL_ENDS = ";|&)`}"

TAKES_HOSTS = frozenset(
    """curl wget http https xh aria2c ping ping6 ping4 fping ssh scp sftp rsync nc ncat netcat socat telnet dig host
    nslookup drill whois traceroute tracepath mtr nmap ftp lftp tftp psql mysql redis-cli mongosh mongo ab wrk hey siege
    svn hg irssi finger rsh rlogin mosh autossh sshfs smbclient ldapsearch snmpwalk kubectl grpcurl websocat w3m lynx
    links elinks youtube-dl yt-dlp""".split()
)
TAKES_URLS = frozenset("curl wget http https xh aria2c w3m lynx links elinks ab wrk hey siege".split())
HOST_FIRST = {
    **dict.fromkeys(("curl", "wget"), "AbcCdDeEFHKmoOPQrtTuUwXyYza"),
    **dict.fromkeys(("ssh", "autossh", "mosh", "sftp"), "BbcDEeFIiJLlmOopQRSWwP"),
    **dict.fromkeys(("nc", "ncat", "netcat", "telnet", "ftp", "tftp"), "iIpqswWxXlbn"),
    **dict.fromkeys(("ping", "ping4", "ping6", "traceroute", "tracepath", "mtr"), "cIilmMpQstTwWSfgqFN"),
    **dict.fromkeys(("host", "nslookup", "drill", "whois", "finger", "rsh", "rlogin"), "cNRtWmhp"),
}
"""The first operand is a host even without a dot (`ping router`); the letters are short options with a value."""
HOST_LETTERS = {
    **dict.fromkeys(
        "psql pg_dump pg_dumpall pg_restore pg_isready createdb dropdb mysql mysqldump mariadb".split(), "h"
    ),
    **dict.fromkeys(("redis-cli", "mongo", "mongosh", "ldapsearch", "influx", "snmpwalk"), "hH"),
    **dict.fromkeys(("curl",), "x"),
    **dict.fromkeys(("ssh", "scp", "sftp", "autossh"), "JW"),
}
"""Short options whose value is a host or a list of them."""
READS_TEXT = frozenset("grep egrep fgrep zgrep rg ag ack sed jq yq tr cut sort uniq wc diff comm expr fold fmt".split())
COPIES = frozenset({"scp", "sftp", "rsync", "git", "ssh", "svn", "hg", "sshfs", "mosh", "autossh"})
WRAPPERS = frozenset(
    "env xargs nice nohup timeout time stdbuf setsid sudo doas ionice chrt taskset flock watch".split()
)

_HOST_OPTION = late(
    r"--?(?:host|hostname|server|servers|url|endpoint|endpoint-url|proxy|preproxy|socks4a?|socks5(?:-hostname)?|remote"
    r"|registry|index-url|extra-index-url|connect|connect-to|peer|address|bootstrap-server|broker|resolve|find-links"
    r"|trusted-host|doh-url|dns-servers)(?:=|$)",
    re.IGNORECASE,
)
_SETTING = late(r"\b(?:host|hostaddr|hostname|proxyjump|server)\s*=\s*([^\s;'\"]+)", re.IGNORECASE)
_SOCAT = late(r"(?:tcp|udp|sctp|openssl|ssl|proxy|socks\w*)(?:4|6)?(?:-connect)?:([^,\s]+)", re.IGNORECASE)
_SCP = late(r"(?:[A-Za-z0-9._-]+@)?([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):(?!\d+$)(?!//)(?!\\)[^:\s]*")
_AT = late(r"[A-Za-z0-9._-]+@([A-Za-z0-9.-]+)")
_PORTED = late(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):(\d{1,5})")
_DOTTED = late(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)+\.?")
_FILE_ENDINGS = frozenset(
    """txt md py js ts json toml yaml yml html htm css c h cc cpp hpp rs go java rb pl sh sql csv tsv xml log lock cfg
    ini conf tar gz bz2 xz zst zip whl pem key crt png jpg jpeg gif svg pdf bin out tmp bak patch diff rst tex lua
    php""".split()
)


def hosts_named(program: str, args: Sequence[str], requested: Sequence[str] = ()) -> tuple[NamedHost, ...]:
    """Every host the call names, each with the argument that named it; `requested` are those it asks for."""
    found: dict[tuple[str, int | None], NamedHost] = {}
    name, inner = _unwrap(program, args)
    copies, silent = name in COPIES, name in READS_TEXT
    if name == "git":
        from palyra.egress.git_words import may_reach, stays_home, without_refspecs

        copies, silent, inner = may_reach(inner), stays_home(inner), without_refspecs(inner)
    for arg, host, port in () if silent else _Reader(name, copies=copies).read(inner):
        found.setdefault((host, port), NamedHost(host, port, arg))
    for text in requested:
        host, port = split_port(text.strip())
        named = NamedHost(parse_host(host), port, text)
        found.setdefault((named.host, named.port), named)
    return tuple(found.values())


def denied(grant: NetGrant, named: Sequence[NamedHost]) -> tuple[NamedHost, ...]:
    return tuple(one for one in named if not judge_host(grant, one.host, one.port).allowed)


def _basename(program: str) -> str:
    return program.replace("\\", "/").rpartition("/")[2].lower().removesuffix(".exe")


def _unwrap(program: str, args: Sequence[str]) -> tuple[str, Sequence[str]]:
    """`timeout 5 curl evil.test` is curl: of a wrapper, the first word that names a program known here."""
    name = _basename(program)
    if name in WRAPPERS:
        for at, arg in enumerate(args):
            inner = _basename(arg)
            if inner in TAKES_HOSTS or inner in COPIES or inner in HOST_LETTERS:
                return inner, args[at + 1 :]
    return name, args


@dataclass(frozen=True, slots=True)
class _Reader:
    program: str
    copies: bool
    """Takes `host:path`. `git show HEAD:a.py` names no host, `git clone host:a` does."""

    def read(self, args: Sequence[str]) -> Iterator[tuple[str, str, int | None]]:
        is_host_value = swallowed = False
        operands = 0
        for arg in args:
            operand = not arg.startswith("-") and not swallowed
            first = operand and operands == 0 and self.program in HOST_FIRST
            operands += operand
            pieces = self._read_argument(arg, is_host_value=is_host_value, first=first)
            yield from ((arg, host, port) for host, port in pieces)
            is_host_value = bool(_HOST_OPTION.fullmatch(arg)) or self._letter_value(arg) == ""
            swallowed = arg[:1] == "-" and (arg[:2] == "--" or arg[-1] in HOST_FIRST.get(self.program, ""))

    def _letter_value(self, arg: str) -> str | None:
        """The value of a short host option: glued on, or empty when it is the next word; None when it is none."""
        letters = HOST_LETTERS.get(self.program, "")
        return arg[2:] if len(arg) > 1 and arg[0] == "-" and arg[1] in letters else None

    def _read_argument(self, arg: str, *, is_host_value: bool, first: bool) -> Found:
        plain = re.sub("[\t\r\n]", "", arg)  # readers of URLs drop these: "ht\ntp://…"
        urls = list(_read_urls(plain))
        yield from urls
        if urls:
            return
        glued = self._letter_value(arg)
        if _HOST_OPTION.match(arg) and "=" in arg:
            arg, is_host_value = arg.partition("=")[2], True
        elif glued:
            arg, is_host_value = glued, True
        if is_host_value:
            for piece in _pieces(arg):
                yield from _host(piece.rpartition("@")[2], None)
            return
        yield from self._read_settings(arg)
        if not arg.startswith("-"):
            pieces = [arg] if first and self.program in TAKES_URLS else _pieces(arg)
            for piece in pieces:
                yield from self._read_bare(piece, first=first)

    def _read_settings(self, arg: str) -> Found:
        """`psql 'host=db.test'`, `ssh -o ProxyJump=a.test`, `socat - TCP:a.test:80`."""
        if self.program not in TAKES_HOSTS:
            return
        shapes = (_SETTING, _SOCAT) if self.program == "socat" else (_SETTING,)
        for shape in shapes:
            for found in shape.finditer(arg):
                yield from (one for piece in found[1].split(",") for one in _host(piece.rpartition("@")[2], None))

    def _read_bare(self, piece: str, *, first: bool) -> Found:
        takes_hosts = self.program in TAKES_HOSTS
        if takes_hosts and self.program in ("dig", "drill", "host"):
            piece = piece.lstrip("@")
        ported = _PORTED.fullmatch(piece)
        if ported:
            named = takes_hosts or _looks_like_host(ported[1])
        elif self.copies and (copied := _SCP.fullmatch(piece) or _AT.fullmatch(piece)):
            yield from _host(copied[1], 22)
            return
        elif is_address(piece.strip("[]")):
            named = takes_hosts or ":" in piece
        elif self.program in TAKES_URLS and not _is_file(piece) and _is_schemeless(piece, first=first):
            piece, named = _AUTHORITY.match(piece)[0].rpartition("@")[2], True  # type: ignore[index]  # matches always
        else:
            named = takes_hosts and not _is_file(piece) and bool(first or _DOTTED.fullmatch(piece))
        if named:
            yield from _host(piece, None)


def _pieces(arg: str) -> list[str]:
    """Of a list with commas, each once: 4 KB of commas name nothing four thousand times."""
    return [piece for piece in dict.fromkeys(arg.split(",")) if piece]


def _read_urls(arg: str) -> Found:
    for found in _SCHEME.finditer(arg):
        scheme, slashes = found[1].lower(), found[2]
        # curl takes one to three slashes after a scheme it knows; anything else needs two.
        if scheme in _NO_HOST or ("//" not in slashes.replace("\\", "/") and scheme not in URL_PORTS):
            continue
        rest = _AUTHORITY.match(arg, found.end())
        # In a shell's text these end the word; only behind the name, where no name server knows what ends so.
        authority = rest[0].rstrip(_SHELL_ENDS) if rest else ""
        for piece in authority.split(","):
            if _SCHEME.match(piece + "//"):
                continue  # "http://a,http://b": the next URL's own scheme
            # Readers differ in whether a backslash ends the authority: name what either would reach.
            for part in piece.split("\\") if "\\" in piece else (piece,):
                yield from _host(part.rpartition("@")[2], URL_PORTS.get(scheme))


def _host(text: str, port: int | None) -> Found:
    """Unreadable as a host: named as it stands, so that it is refused rather than overlooked."""
    text = text.strip().rstrip("/")
    if not text:
        return
    try:
        name, own_port = split_port(text) if not is_address(text) else (text, None)
        yield parse_host(name), own_port if own_port is not None else port
    except Rejected:
        yield text[:253], port


def _is_schemeless(piece: str, *, first: bool) -> bool:
    """`example.com/path`, `user:pw@example.com`: an address without its scheme."""
    authority = re.split(r"[/?#]", piece, maxsplit=1)[0].rpartition("@")[2]
    host = split_port(authority)[0]
    return bool(authority) and (first or bool(_DOTTED.fullmatch(host)) or is_address(host))


def _looks_like_host(name: str) -> bool:
    """`main.py:12` and `12:30` are not hosts; `localhost:8080` and `db.example.com:5432` are."""
    if name.startswith("[") or is_address(name) or name.lower() == "localhost":
        return True
    return bool(_DOTTED.fullmatch(name)) and not _is_file(name) and not name.replace(".", "").isdigit()


def _is_file(name: str) -> bool:
    return "/" not in name and name.rpartition(".")[2].lower() in _FILE_ENDINGS
