"""Many machines on one: a real PostgreSQL, real daemons' processes, real Ray nodes. `make test-cluster` runs these."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("PALYRA_TEST_CLUSTER") else ["test_*.py"]
