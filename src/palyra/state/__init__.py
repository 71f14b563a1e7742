"""One database, one writer: under every store."""
