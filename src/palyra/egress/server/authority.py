"""An authority of this process alone, for hosts whose TLS is ended outside the sandbox, to add credentials.

Rules: keys are made when they are first needed and live in memory only (a certificate's key passes through an
anonymous file, because OpenSSL takes files); the authority's certificate allows the marked hosts and nothing else, and
is trusted only inside sandboxes, through their own bundle; it ends with the process, or in a week: another takes its
place days before, so that no call sees the end of the one it trusts (wiring/egress). A host's certificate is made
once. Not here: which hosts (config), the bundle's place inside (sandbox/bwrap), the handshakes (tls).
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from typing import TYPE_CHECKING

from palyra.egress.hosts import read_address
from palyra.model.net import HostKind, HostPattern

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

_NAME = "Palyra egress of one process"
_LIFETIME = timedelta(days=7)
FRESH_MS = 5 * 24 * 3600 * 1000
"""How long calls begin with one; none runs for more than the day that is left to it then, and another for clocks."""
_BACKDATED = timedelta(days=1)
"""Clocks differ, and a certificate from the future is refused."""
_MAX_HOSTS = 256


class Authority:
    def __init__(self, hosts: Sequence[HostPattern], *, now_unix_ms: Callable[[], int]) -> None:
        self._hosts = tuple(hosts)
        self._now_unix_ms = now_unix_ms
        self._own: tuple[ec.EllipticCurvePrivateKey, x509.Certificate] | None = None
        self._contexts: dict[str, ssl.SSLContext] = {}

    @property
    def pem(self) -> bytes:
        """Its certificate, for the sandbox's bundle."""
        from cryptography.hazmat.primitives.serialization import Encoding

        return self._authority()[1].public_bytes(Encoding.PEM)

    def context_for(self, host: str) -> ssl.SSLContext:
        """A server's context with a certificate for this host."""
        known = self._contexts.get(host)
        if known is None:
            if len(self._contexts) >= _MAX_HOSTS:
                self._contexts.clear()
            known = self._contexts[host] = self._make_context(host)
        return known

    def _authority(self) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
        if self._own is None:
            from cryptography import x509
            from cryptography.hazmat.primitives import hashes

            key, builder = self._begin(_NAME)
            builder = builder.issuer_name(_name(_NAME))
            builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
            permitted = [_constraint(pattern) for pattern in self._hosts]
            limits = x509.NameConstraints(permitted_subtrees=permitted, excluded_subtrees=None)
            builder = builder.add_extension(limits, critical=True)
            self._own = key, builder.sign(key, hashes.SHA256())
        return self._own

    def _make_context(self, host: str) -> ssl.SSLContext:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        from cryptography.x509.oid import ExtendedKeyUsageOID

        own_key, own = self._authority()
        key, builder = self._begin(host[:64])
        address = read_address(host)
        named: x509.GeneralName = x509.DNSName(host) if address is None else x509.IPAddress(address)
        builder = builder.issuer_name(own.subject)
        builder = builder.add_extension(x509.SubjectAlternativeName([named]), critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
        purpose = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        certificate = builder.add_extension(purpose, critical=False).sign(own_key, hashes.SHA256())
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return _server_context(secret + certificate.public_bytes(Encoding.PEM))

    def _begin(self, name: str) -> tuple[ec.EllipticCurvePrivateKey, x509.CertificateBuilder]:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.fromtimestamp(self._now_unix_ms() // 1000, UTC)
        builder = x509.CertificateBuilder().subject_name(_name(name)).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        return key, builder.not_valid_before(now - _BACKDATED).not_valid_after(now + _LIFETIME)


def upstream_context() -> ssl.SSLContext:
    """Verifies hosts by the machine's own trust, as any program outside would."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _server_context(chain: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    fd = os.memfd_create("palyra-tls", os.MFD_CLOEXEC)
    try:
        os.write(fd, chain)
        context.load_cert_chain(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)
    return context


def _name(text: str) -> x509.Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _constraint(pattern: HostPattern) -> x509.GeneralName:
    from cryptography import x509

    if pattern.kind is HostKind.NETWORK:
        return x509.IPAddress(ip_network(pattern.value))
    return x509.DNSName(pattern.value)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
