"""The sockets around egress conversations: one `Serving` for each call, one `Line` for each connection."""
