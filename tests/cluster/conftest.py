"""Many machines on one: a real PostgreSQL, real daemons' processes, real Ray nodes. `make test-cluster` runs these."""

from __future__ import annotations

import os
import secrets

WANTED = bool(os.environ.get("PALYRA_TEST_CLUSTER"))
collect_ignore_glob = [] if WANTED else ["test_*.py"]
if WANTED:  # Ray reads these when it is imported
    os.environ |= {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # every address is loopback's
        "RAY_worker_niceness": "0",  # as palyra cluster up starts it
        "RAY_health_check_period_ms": "1000",
        "RAY_health_check_failure_threshold": "3",
    }
