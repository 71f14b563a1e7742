"""Benchmarks: every number is a ratio beside a peer, measured in one run. `python -m bench`, or `make bench`."""
