"""MANY MACHINES: the same ports, other hands. An extra: `palyra[cluster]`."""
