"""What a new home's policies folder begins with: examples in comments, so that the posture alone decides."""

from __future__ import annotations

from palyra.policy.bundle import EXAMPLES_FILE

_STARTER_POLICIES = """\
// Your own policies. They stand beside those of the posture in palyra.toml (palyra policy show lists them all); one
// with the @id of a posture's policy replaces it. Every policy needs an @id; @reason, @hint and @code are shown to
// the caller who is refused. A forbid that an approval lifts makes the call wait for a person: palyra approvals list.
//
// @id("local.no-rm-for-agents")
// @reason("Agents do not delete files here.")
// forbid (principal is Agent, action == Action::"tool::execute", resource == Tool::"palyra.process.run")
// when { context.effective_program == "rm" };
//
// @id("local.ask-before-moving")
// @reason("Moving files needs a person's approval.")
// forbid (principal is Agent, action == Action::"tool::execute", resource == Tool::"palyra.process.run")
// when { context.effective_program == "mv" }
// unless { context.approved };
//
// @id("local.demo-lists-files")
// permit (principal == Agent::"demo", action == Action::"tool::execute", resource == Tool::"palyra.process.run")
// when { context.effective_program == "ls" && context.tier == "C" && context.egress == "strict" };
"""
_STARTER_EXAMPLES = """\
# What your policies promise; checked whenever they are loaded, and by `palyra policy test`.
#
# [[example]]
# name = "an agent may not delete files"
# expect = "deny"                       # allow | ask | deny
# principal = "agent:demo"
# facts = { program = "rm" }
"""


def starter_files() -> dict[str, str]:
    """What a new home's policies folder begins with: only comments, so the posture alone decides."""
    return {"local.cedar": _STARTER_POLICIES, EXAMPLES_FILE: _STARTER_EXAMPLES}
