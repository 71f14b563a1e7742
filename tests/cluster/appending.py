"""One of several daemons, for tests: opens and closes calls of one run until it is refused. Prints what it was told.

python -m tests.cluster.appending URL ROOT RUN_ID CALLS_MAX CALLS
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from palyra.budget.store import BudgetStore
from palyra.cluster.opening import open_writer
from palyra.errors import Rejected
from palyra.journal.store import JournalStore
from tests.journaling import closing, opening, run_spec, ulid


async def work(store: JournalStore, run_id: str, calls_max: int, calls: int) -> tuple[int, int]:
    run = run_spec(run_id, calls_max=calls_max, attempts_max=10**6)

    async def one() -> bool:
        call_id = ulid()
        try:
            await store.open_call(opening(call_id, run))
        except Rejected:
            return False
        await store.close_call(closing(call_id, run))
        return True

    done = 0
    for at in range(0, calls, 8):  # eight at a time share their commits
        done += sum(await asyncio.gather(*(one() for _ in range(min(8, calls - at)))))
    return done, calls - done


def main() -> None:
    url, root, run_id, calls_max, calls = sys.argv[1:]
    writer = open_writer(url, Path(root))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    done, refused = asyncio.run(work(JournalStore(writer, BudgetStore()), run_id, int(calls_max), int(calls)))
    writer.close()
    sys.stdout.write(f"{done} {refused}\n")


if __name__ == "__main__":
    main()
