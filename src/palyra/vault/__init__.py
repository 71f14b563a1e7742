"""Secrets at rest: sealed, versioned, scoped; handed out by name and never shown."""
