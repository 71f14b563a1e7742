"""AUTHORISE: Cedar bundles, requests, decisions and their explanation. Only `store` and `load` touch the world."""
