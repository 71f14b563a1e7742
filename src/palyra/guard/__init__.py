"""GUARD: what a native call would really do, said as facts before anything starts."""
