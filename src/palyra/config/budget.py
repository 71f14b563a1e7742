"""`[budget]`: what runs may use beside their calls, one by one and all of a principal's day together."""

from __future__ import annotations

from dataclasses import field, fields

from palyra.model.budget import Allowance, Quota
from palyra.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBudgetConfig:
    """`[budget.run]`: what one run may use in all, beside its calls. 0 is no limit."""

    wall_ms: int = 0
    """Time that programs run, each call's added up."""
    cpu_ms: int = 0
    """Processor time of whole calls."""
    output_bytes: int = 0
    """What programs write to stdout and stderr."""
    egress_bytes: int = 0
    """Network traffic in both directions; a call whose network is not metered is refused then."""
    fuel: int = 0
    """Fuel of WASM guests."""

    @property
    def allowance(self) -> Allowance:
        return Allowance(
            wall_us=self.wall_ms * 1000 or None,
            cpu_us=self.cpu_ms * 1000 or None,
            output_bytes=self.output_bytes or None,
            egress_bytes=self.egress_bytes or None,
            fuel=self.fuel or None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PrincipalBudgetConfig:
    """`[budget.principal_day]`: what all runs together may use that one principal began on one day (UTC)."""

    calls: int = 0
    """Calls that start. 0 is no limit, here and below."""
    wall_ms: int = 0
    """As in `[budget.run]`, and so are the others."""
    cpu_ms: int = 0
    """Processor time."""
    output_bytes: int = 0
    """Output."""
    egress_bytes: int = 0
    """Network traffic."""
    fuel: int = 0
    """WASM fuel."""

    @property
    def quota(self) -> Quota:
        same = {f.name: getattr(self, f.name) for f in fields(RunBudgetConfig)}
        return Quota(calls=self.calls or None, most=RunBudgetConfig(**same).allowance)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetConfig:
    """`[budget]`."""

    run: RunBudgetConfig = field(default_factory=RunBudgetConfig)
    principal_day: PrincipalBudgetConfig = field(default_factory=PrincipalBudgetConfig)
