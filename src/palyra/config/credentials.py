"""`[vault]` and `[[credentials]]`: where the vault's key is, and which secret belongs to which host.

Names of secrets stand here, never values. Not here: reading the file (config/load), the vault itself (vault).
"""

from __future__ import annotations

from palyra.errors import ConfigError
from palyra.late import late
from palyra.values import dataclass

KEY_SOURCES = ("file", "keyring", "passphrase")
SECRET_NAME = late(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
HEADER_NAME = late(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_HOST = late(r"[^\s/@*,]{1,260}")
FORBIDDEN_HEADERS = frozenset(
    "host connection content-length transfer-encoding te trailer upgrade expect keep-alive proxy-connection".split()
)
"""They say where a request goes or where it ends: a secret there would be a smuggled request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VaultConfig:
    """`[vault]`."""

    key: str = "file"
    """Where the master key of a new vault is kept: a file in the home that only its owner may read, the system's
    keyring (needs the extra `keyring`), or nowhere: it is derived from a passphrase."""
    passphrase_file: str = ""
    """A file, readable only by its owner, whose first line is the passphrase. Without it `palyra secrets` asks on the
    terminal, and everything else refuses to start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialConfig:
    """One `[[credentials]]`."""

    host: str = ""
    """`host` (port 443, encrypted) or `host:port` (encrypted or not), exactly; no pattern."""
    secret: str = ""
    """The secret's name in the vault. Its own scope still decides who may use it."""
    header: str = "Authorization"
    """The request header that carries it."""
    prefix: str = ""
    """Text before the value, such as `Bearer `."""


def check_binding(host: str, header: str, prefix: str) -> None:
    """Raises ConfigError with a sentence for what cannot be a credential's place."""
    if not _HOST.fullmatch(host):
        raise ConfigError(f"{host!r} is not a host.", "Write host or host:port, exactly, without a scheme.")
    if not HEADER_NAME.fullmatch(header) or header.lower() in FORBIDDEN_HEADERS:
        raise ConfigError(f"{header!r} cannot carry a credential.", "Use Authorization, or a header such as X-Api-Key.")
    if not prefix.isascii() or any(ord(letter) < 32 for letter in prefix) or len(prefix) > 128:
        raise ConfigError(
            "The prefix has characters that a header cannot carry.", "Write plain text, such as 'Bearer '."
        )


def check_name(name: str) -> None:
    if not SECRET_NAME.fullmatch(name):
        raise ConfigError(
            f"{name[:80]!r} cannot be a secret's name.",
            "Use up to 128 letters, digits, dots, underscores and hyphens, a letter or digit first.",
        )


def check_credential(credential: CredentialConfig) -> None:
    for key, example in (("secret", "FORGE_TOKEN"), ("host", "api.example.com")):
        if not getattr(credential, key):
            raise ConfigError(f"A credential has no {key}.", f'Add one to its [[credentials]]: {key} = "{example}".')
    check_name(credential.secret)
    check_binding(credential.host, credential.header, credential.prefix)
