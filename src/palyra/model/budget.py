"""What runs may use and have used, beside calls: time, processor, output, network, fuel.

`Spending` is an amount, `Allowance` a limit for each (None: no limit), `Quota` what all runs of a principal share.
Units are in the names; times are integer microseconds. Not here: the rules (budget/ledger), the rows (budget/store).
"""

from __future__ import annotations

from dataclasses import field

from palyra.values import dataclass

RESOURCES = ("wall_us", "cpu_us", "output_bytes", "egress_bytes", "fuel")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    wall_us: int = 0
    cpu_us: int = 0
    output_bytes: int = 0
    egress_bytes: int = 0
    fuel: int = 0

    def as_json(self) -> dict[str, int]:
        return dict(zip(RESOURCES, self.amounts, strict=True))

    @property
    def amounts(self) -> tuple[int, int, int, int, int]:
        """In the order of RESOURCES."""
        return self.wall_us, self.cpu_us, self.output_bytes, self.egress_bytes, self.fuel


NOTHING = Spending()


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    wall_us: int | None = None
    cpu_us: int | None = None
    output_bytes: int | None = None
    egress_bytes: int | None = None
    fuel: int | None = None
    is_unlimited: bool = field(init=False, repr=False, compare=False)

    @property
    def amounts(self) -> tuple[int | None, ...]:
        """In the order of RESOURCES."""
        return self.wall_us, self.cpu_us, self.output_bytes, self.egress_bytes, self.fuel

    def __post_init__(self) -> None:
        if any(amount is not None and amount < 0 for amount in self.amounts):
            raise ValueError("a limit is never negative")
        object.__setattr__(self, "is_unlimited", self.amounts == (None,) * len(RESOURCES))

    def narrow(self, other: Allowance) -> Allowance:
        """The smaller of each."""
        if other is UNLIMITED:
            return self
        both = zip(RESOURCES, self.amounts, other.amounts, strict=True)
        return Allowance(**{name: _smaller(mine, theirs) for name, mine, theirs in both})


def _smaller(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else min(one, other)


UNLIMITED = Allowance()


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Of all runs together that one principal began on one day (UTC)."""

    calls: int | None = None
    most: Allowance = UNLIMITED
    is_unlimited: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_unlimited", self.calls is None and self.most.is_unlimited)


NO_QUOTA = Quota()
