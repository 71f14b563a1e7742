"""A certificate authority and a TLS web server of the tests' own, on loopback."""

from __future__ import annotations

import datetime
import ssl
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.servers import Seen, make_web_server


@contextmanager
def tls_web(name: str) -> Iterator[tuple[Seen, bytes]]:
    """(what reached it, the certificate to trust)."""
    certificate, key = make_certificate(name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        chain = Path(folder) / "chain.pem"
        chain.write_bytes(key + certificate)
        context.load_cert_chain(chain)
    server, seen = make_web_server(None)
    with server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield seen, certificate
        server.shutdown()
        thread.join()


def make_certificate(name: str) -> tuple[bytes, bytes]:
    """(certificate, key), as PEM; it signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(
        now + datetime.timedelta(days=1)
    )
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    return certificate, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
