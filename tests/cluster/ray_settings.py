"""What Ray reads of the environment when it is imported: a token of this process's own, and no talking home."""

from __future__ import annotations

import secrets

RAY_SETTINGS = {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # every address is loopback's
    "RAY_worker_niceness": "0",  # as palyra cluster up starts it
}
