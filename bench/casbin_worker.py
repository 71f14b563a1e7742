"""Runs under the peers' own python: a line in, so many decisions by casbin, the nanoseconds out.

The rules of posture standard, written out for casbin by hand: the same facts, the same permits and forbids, deny wins.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import casbin  # type: ignore[import-not-found]  # installed in the peers' environment alone

MODEL = """
[request_definition]
r = sub, act, obj, ctx
[policy_definition]
p = rule, eft
[policy_effect]
e = some(where (p.eft == allow)) && !some(where (p.eft == deny))
[matchers]
m = r.act == "execute" && eval(p.rule)
"""
CODE = "(r.ctx.interpreter || r.ctx.runs_code || r.ctx.inline_code)"
RULES = (
    (f"{CODE} && !r.ctx.granted_interpreters", "deny"),
    ("!r.ctx.listed", "deny"),
    ("r.ctx.agent_writable", "deny"),
    (f"!r.ctx.found && r.ctx.listed && !(!r.ctx.granted_interpreters && {CODE})", "deny"),
    ("r.ctx.outside_workspace", "deny"),
    ("r.ctx.hosts_denied > 0", "deny"),
    ("r.sub.kind == 'agent' && r.ctx.tier == 'B' && !(r.ctx.granted_tier || r.ctx.approved)", "deny"),
    ("!(r.ctx.egress == 'strict' || r.ctx.granted_egress || r.ctx.approved)", "deny"),
    ("r.ctx.has_used_secret && r.ctx.has_received_outside_content && r.ctx.network && !r.ctx.approved", "deny"),
    ("r.ctx.cap_secrets_read && !r.ctx.approved", "deny"),
    ("r.ctx.sensitive && !r.ctx.approved", "deny"),
    ("!r.ctx.found", "deny"),
    ("r.obj.group == 'builtin'", "allow"),
    ("r.obj.group == 'process' && (r.ctx.tier == 'C' || r.ctx.tier == 'B')", "allow"),
)
FLAGS = (
    *("interpreter runs_code inline_code granted_interpreters granted agent_writable outside_workspace".split()),
    *("granted_tier approved granted_egress has_used_secret has_received_outside_content network".split()),
    *("cap_secrets_read sensitive".split()),
)


def make_enforcer() -> casbin.Enforcer:
    with tempfile.TemporaryDirectory() as folder:
        model, policy = Path(folder, "model.conf"), Path(folder, "policy.csv")
        model.write_text(MODEL, encoding="utf-8")
        policy.write_text("".join(f"p, {rule}, {effect}\n" for rule, effect in RULES), encoding="utf-8")
        return casbin.Enforcer(str(model), str(policy))


def main(count: int) -> None:
    enforcer = make_enforcer()
    subject, tool = SimpleNamespace(kind="agent"), SimpleNamespace(group="process")
    context = SimpleNamespace(
        **dict.fromkeys(FLAGS, False), listed=True, found=True, tier="C", egress="strict", hosts_denied=0
    )
    context_b = SimpleNamespace(**{**vars(context), "listed": False})
    if not enforcer.enforce(subject, "execute", tool, context) or enforcer.enforce(subject, "execute", tool, context_b):
        raise SystemExit("casbin does not decide as Palyra does")
    for _ in sys.stdin:
        start = time.perf_counter_ns()
        allowed = sum(enforcer.enforce(subject, "execute", tool, context) for _ in range(count)) == count
        took = time.perf_counter_ns() - start
        print(took if allowed else "failed", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
