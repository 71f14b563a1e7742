"""Touches: sockets and files. Where the daemon listens, and what must be so before it may.

Rules: an address of this machine alone needs nothing; any other needs TLS and a token that holds, or the daemon does
not start: what crosses a network would be read there, and nobody could prove who they are. One daemon serves a home.

Not here: what is said over the sockets (daemon/server).
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import stat
from ipaddress import ip_address
from pathlib import Path

from palyra.config.daemon import DaemonConfig
from palyra.daemon.listening import BoundedListener
from palyra.daemon.port_holder import describe_holder, find_free_port
from palyra.errors import ConfigError
from palyra.state.lock import FileLock

SOCKET = "palyrad.sock"
LOCK = "palyrad.lock"
BACKLOG = 1024
SOCKET_MODE = 0o660
_LOCK_PATIENCE_S = 2.0


def socket_path(home: Path, settings: DaemonConfig) -> Path:
    return Path(settings.socket) if settings.socket else home / "run" / SOCKET


def point_at(home: Path, path: Path) -> None:
    """At a socket that was put elsewhere, from where it would be: a hook looks there and reads no configuration."""
    usual = home / "run" / SOCKET
    if usual == path:
        return
    fresh = usual.with_name(f".{SOCKET}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(path)
    fresh.rename(usual)


def forget_pointer(home: Path) -> None:
    """What `point_at` left; a socket itself is left alone."""
    usual = home / "run" / SOCKET
    if usual.is_symlink():
        usual.unlink(missing_ok=True)


def take_home(home: Path) -> FileLock:
    """Held as long as the daemon lives."""
    run = home / "run"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)  # by itself: parents of a folder get the umask's mode
    run.mkdir(mode=0o700, exist_ok=True)
    os.close(os.open(run / LOCK, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    lock = FileLock(run / LOCK)
    if not lock.acquire(_LOCK_PATIENCE_S):
        raise ConfigError("A daemon already serves this home.", "Stop it first, or name another --home.")
    return lock


def is_local(host: str) -> bool:
    """Whether an address is reached from this machine alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_reach(settings: DaemonConfig, *, has_tokens: bool) -> None:
    if bool(settings.tls_certificate) != bool(settings.tls_key):
        raise ConfigError("TLS needs both files.", "Set daemon.tls_certificate and daemon.tls_key.")
    if is_local(settings.host):
        return
    if not settings.tls_certificate:
        raise ConfigError(
            f"{settings.host} can be reached from other machines, and there is no TLS.",
            "Set daemon.tls_certificate and daemon.tls_key, or listen on 127.0.0.1 behind a proxy.",
        )
    if not has_tokens:
        raise ConfigError(
            f"{settings.host} can be reached from other machines, and there is no valid token.",
            "Make one first: palyra token create --principal agent:NAME",
        )


def tls_context(settings: DaemonConfig) -> ssl.SSLContext | None:
    if not settings.tls_certificate:
        return None
    key = Path(settings.tls_key)
    try:
        if stat.S_IMODE(key.stat().st_mode) & 0o077:
            raise ConfigError(f"{key} is accessible to other users.", f"Run: chmod go-rwx '{key}'")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(settings.tls_certificate, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"The TLS files cannot be used: {error}.", "See daemon.tls_certificate, tls_key.") from error
    return context


def _taken(family: int, host: str, port: int) -> ConfigError:
    holder, free = describe_holder(port), find_free_port(family, host, port)
    hint = f"Use --port {free}, or stop that program." if free else "Name another with --port."
    return ConfigError(f"Port {port} of {host} is taken{f' ({holder})' if holder else ''}.", hint)


def open_tcp(settings: DaemonConfig) -> BoundedListener:
    host = settings.host.strip("[]")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = BoundedListener(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"{settings.host} is not an address to listen on: {error}.", "See --host.") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
        sock.setblocking(False)  # the standard library's own
    except OSError as error:
        sock.close()
        where = f"{settings.host}:{settings.port}"
        if error.errno == errno.EADDRINUSE:
            raise _taken(family, host, settings.port) from error
        raise ConfigError(f"Cannot listen on {where}: {error.strerror}.", "See --host and --port.") from error
    return sock


def open_unix(path: Path) -> socket.socket:
    """Under another name first, then moved into place: one that a dead daemon left is replaced in one step."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)  # itself alone: a mistyped path makes no folders
        if path.exists() and not stat.S_ISSOCK(path.lstat().st_mode):
            raise ConfigError(f"{path} exists and is not a socket.", "Name another with --socket.")
        fresh.unlink(missing_ok=True)
        sock.bind(str(fresh))
        fresh.chmod(SOCKET_MODE)
        sock.listen(BACKLOG)
        fresh.rename(path)
        sock.setblocking(False)  # the standard library's own
    except OSError as error:
        sock.close()
        hint = (
            "Create its folder first." if isinstance(error, FileNotFoundError) else "Name a shorter path with --socket."
        )
        raise ConfigError(f"{path}: {error.strerror or error}.", hint) from error
    except ConfigError:
        sock.close()
        raise
    return sock


def url_of(sock: socket.socket, *, tls: bool) -> str:
    host, port = sock.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{shown}:{port}"
