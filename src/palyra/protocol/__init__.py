"""VALIDATE: bytes into calls, tools and their schemas, and the one codec every door uses."""
