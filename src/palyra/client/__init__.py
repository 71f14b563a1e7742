"""The daemon over HTTP or its Unix socket, with the faces of `palyra.api`."""
