"""The version of Palyra. A test holds it against pyproject.toml."""

__version__ = "0.1.0"
