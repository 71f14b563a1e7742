"""The daemon's credentials: who a bearer token speaks for, and until when."""
