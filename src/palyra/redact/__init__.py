"""REDACT: secrets leave the output, every other byte stays; safe across any chunk boundary."""
