"""However many connections a program makes, its record stays readable and no byte is lost from the sums."""

from __future__ import annotations

from palyra.egress.events import Ruled, Ruling
from palyra.egress.records import EACH, REST, SUMMED, Records
from palyra.model.outcome import Connection


def ruled(host: str, ruling: Ruling = Ruling.GRANTED, port: int = 443) -> Ruled:
    return Ruled(host=host, port=port, ruling=ruling, why=f"because of {host}")


def test_each_of_the_first_has_a_record_of_its_own() -> None:
    records = Records()
    for host, ruling in (("a.test", Ruling.GRANTED), ("a.test", Ruling.REFUSED), ("b.test", Ruling.FAILED)):
        records.count(records.open(ruled(host, ruling)), up=1, down=2)
    assert records.connections() == tuple(
        Connection(host=host, port=443, verdict=verdict, bytes_up=1, bytes_down=2, why=f"because of {host}")
        for host, verdict in (("a.test", "allowed"), ("a.test", "denied"), ("b.test", "failed"))
    )


def test_later_ones_are_summed_and_the_rest_is_one_line_a_verdict() -> None:
    records = Records()
    total = 5000
    for at in range(total):
        records.count(records.open(ruled(f"h{at}.test")), up=1, down=0)
        records.open(ruled(f"evil{at}.test", Ruling.REFUSED))
    kept = records.connections()
    assert len(kept) <= EACH + SUMMED + 3
    assert sum(one.bytes_up for one in kept) == total
    assert {one.verdict for one in kept if one.host == REST} == {"allowed", "denied"}


def test_the_same_host_again_costs_no_further_line() -> None:
    records = Records()
    for _ in range(10_000):
        records.count(records.open(ruled("a.test")), up=0, down=3)
    kept = records.connections()
    assert len(kept) == EACH + 1
    assert sum(one.bytes_down for one in kept) == 30_000
