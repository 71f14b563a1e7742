"""`python -m tests.ratchet`: measures every story and writes the numbers that fell; a total that rose is an error."""

from __future__ import annotations

import json
import sys

from tests.ratchet.counts import RECORD, STORIES, combine, measure, read_record, rises
from tests.ratchet.measure import Counts


def main() -> int:
    record, measured = read_record(), {story: measure_often(story) for story in STORIES}
    rose = [
        f"{story}: {kind} rose from {before} to {now}"
        for story, kinds in measured.items()
        for kind, by_area in kinds.items()
        if (now := sum(by_area.values())) > (before := sum(record.get(story, {}).get(kind, {"": sys.maxsize}).values()))
    ]
    for line in rose:
        sys.stderr.write(f"palyra: {line}\n")
    if rose:
        return 1
    for line in rises(record, measured):
        sys.stdout.write(f"moved between areas: {line}\n")
    RECORD.write_text(json.dumps(measured, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 0


def measure_often(story: str) -> Counts:
    """Return the highest of three measurements, so that what varies by chance is not recorded at its lowest."""
    first, second, third = (measure(story) for _ in range(3))
    return combine(combine(first, second, max), third, max)


if __name__ == "__main__":
    sys.exit(main())
