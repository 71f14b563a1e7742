"""AUTHORISE: Cedar bundles, requests, decisions and their explanation. Only `store` touches the world."""
