"""Guests of tier A: what runs a WebAssembly module with nothing but what it was granted.

Everything here runs in the jailed worker and, for first-party skills, in the engine's own process; so it leans on the
standard library and wasmtime alone and starts no thread of its own but the epoch timer's.
"""
