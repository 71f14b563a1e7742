"""What each reason means and what to do about it: one row a code, for `palyra explain` and the reference.

Beside them, what to do about a machine that has run out of something. A test holds the table against `errors.Reason`,
and docs/reference/reasons.md is made from it.
"""

from __future__ import annotations

import errno

from palyra.errors import Reason
from palyra.values import dataclass


@dataclass(frozen=True, slots=True)
class Page:
    meaning: str
    remedy: str


REASONS: dict[Reason, Page] = {
    Reason.MALFORMED: Page(
        "The input is not one strict JSON object: bad UTF-8, a duplicate key, NaN, nesting past 32, trailing data.",
        "Send one JSON object as RFC 8259 defines it; the message names the first thing that is wrong.",
    ),
    Reason.TOO_LARGE: Page(
        "The input is larger than the tool accepts; it was refused before it was parsed.",
        "Send less: put large data into a file of the workspace. An operator can look the cap up: palyra tools show "
        "TOOL.",
    ),
    Reason.UNKNOWN_TOOL: Page("There is no tool of that name.", "palyra tools list shows them all."),
    Reason.BAD_ARGUMENTS: Page(
        "The input does not fit the tool's schema, or an argument has a shape that is never right.",
        "The message names the field. For process.run: command is one program name, its arguments go into args.",
    ),
    Reason.POLICY_DENIED: Page(
        "No policy permits this call, or a policy forbids it.",
        "palyra policy explain CALL_ID names the policies and the smallest change that would allow it.",
    ),
    Reason.POLICY_ERROR: Page(
        "A policy could not be evaluated, so the call was denied.",
        "palyra policy explain CALL_ID names the policy; fix it, then check it with palyra policy show.",
    ),
    Reason.NOT_APPROVED: Page(
        "Policy asks for a person, and the person said no; or the approval was used, revoked or for another plan.",
        "palyra approvals show ID says who and why. After a no the same call stays refused until the request would "
        "have expired; palyra approvals revoke ID takes the no back. Otherwise repeat the call to ask again.",
    ),
    Reason.APPROVAL_TIMEOUT: Page("Nobody decided in time, so the call was denied.", "Repeat the call to ask again."),
    Reason.BUDGET_SPENT: Page(
        "The run, or its principal for the day, has used up its calls, its refused attempts, or the time, processor "
        "time, output, network traffic or fuel it may use; the message says which, how much and of how much.",
        "Start another run. An operator can extend it (palyra runs extend RUN_ID), or raise the limit in [tool_call] "
        "or [budget].",
    ),
    Reason.EXECUTABLE_DENIED: Page(
        "The program is not on the allowlist, does not exist, could be written by the agent, or kills processes by "
        "name.",
        "An operator can allow it for this call: palyra run --allow NAME; always: allowed_executables in "
        "[tool_call.process_runner].",
    ),
    Reason.INTERPRETER_DENIED: Page(
        "The program is an interpreter, or would run one or other code that its arguments name.",
        "Use a program that runs no code, such as grep. An operator can allow it for this call: palyra run "
        "--allow-interpreters; always: palyra init --posture developer.",
    ),
    Reason.OUTSIDE_WORKSPACE: Page(
        "An argument or the working folder leads out of the workspace, links followed.",
        "Work below the workspace. An operator can choose another with --workspace, or grant a folder with --read DIR.",
    ),
    Reason.EGRESS_DENIED: Page(
        "The call names a host that it was not granted.",
        "An operator can allow it for this call: palyra run --allow-host HOST; always: allowed_egress_hosts in "
        "[tool_call.process_runner].",
    ),
    Reason.UNENFORCEABLE: Page(
        "This host cannot enforce what the call needs, so it was not run with less.",
        "palyra doctor names the blocker and the fix.",
    ),
    Reason.SKILL_NOT_ACTIVE: Page("The skill is not enabled.", "An operator can enable it: palyra skills enable ID."),
    Reason.SKILL_TAMPERED: Page(
        "The skill's files are not those that were approved; it is quarantined.", "Install it again from its package."
    ),
    Reason.CAPABILITY_DENIED: Page(
        "The tool or the credential lacks a capability the call needs.",
        "allowed_capabilities in [tool_call], or an operator's credential.",
    ),
    Reason.JOURNAL_DOWN: Page(
        "The journal cannot be written durably, so nothing runs.",
        "Free space or repair the state folder, then try again: palyra doctor, palyra journal verify.",
    ),
    Reason.SPAWN_FAILED: Page(
        "The program was allowed but could not be started.",
        "The message is the launcher's own; palyra doctor checks the sandbox.",
    ),
    Reason.TIMEOUT: Page(
        "The call did not end in time; its whole process tree was killed.",
        "Do less in one call, give a larger timeout_ms, or start it in the background. An operator can give more time: "
        "palyra run --timeout S, or execution_timeout_ms in [tool_call].",
    ),
    Reason.QUOTA_EXCEEDED: Page(
        "The program wrote more than its output quota; it was killed and what was captured is returned.",
        "Let it write to a file of the workspace. An operator can give more: palyra run --max-output BYTES, or "
        "max_output_bytes in [tool_call.process_runner].",
    ),
    Reason.OUT_OF_FUEL: Page(
        "The WASM guest used up its fuel.",
        "Raise fuel_budget (for components component_fuel_budget) in [tool_call.wasm_runtime], or do less per call.",
    ),
    Reason.MEMORY_LIMIT: Page(
        "The kernel killed the program at its memory limit.",
        "Do less at once. An operator can give more: palyra run --memory BYTES, or memory_limit_bytes in "
        "[tool_call.process_runner].",
    ),
    Reason.CPU_LIMIT: Page(
        "The kernel killed the program at its CPU limit.",
        "Do less in one call. An operator can raise cpu_time_limit_ms in [tool_call.process_runner].",
    ),
    Reason.TRAPPED: Page("The WASM guest trapped.", "Fix the skill; its log says where."),
    Reason.CANCELLED: Page(
        "The caller cancelled the call; its process tree was killed.",
        "Call again if it is still wanted. What it did stays done; palyra journal show CALL_ID has its record.",
    ),
    Reason.INTERRUPTED: Page(
        "Palyra itself was killed while the call ran; the call was closed at the next start.",
        "Check what the program had done, then repeat the call.",
    ),
    Reason.BUSY: Page(
        "Too many calls of this run are waiting, too many of its background processes are running, or too many "
        "requests are waiting for a person.",
        "Wait for some to finish, then send the same call again: its id is still free. Or stop a background process "
        "with palyra.process.stop, or use another run.",
    ),
    Reason.CALL_ID_REUSED: Page("The call id belongs to another call.", "Send a fresh call_id, or leave it out."),
    Reason.INTERNAL: Page("Palyra itself failed.", "The log says where; report it."),
}

SHORTAGES: dict[int, str] = {
    errno.EMFILE: "Too many files are open: raise the limit (ulimit -n 1024), or run fewer calls at once.",
    errno.ENFILE: "The machine can open no more files: end some programs, or raise fs.file-max.",
    errno.EAGAIN: "This user has too many processes: end some, or raise the limit (ulimit -u, a cgroup's pids.max).",
    errno.ENOMEM: "There is too little memory: end some programs, raise the limit (ulimit -v), or run fewer calls.",
    errno.ENOSPC: "The disk, or wherever the output goes, is full; or the kernel has no more namespaces (sysctl "
    "user.max_user_namespaces).",
    errno.EDQUOT: "The disk quota is used up: free some space.",
    errno.EROFS: "The file system is mounted read-only: mount it writable, or name another place.",
    errno.EACCES: "This user has no permission: name another place, or change its permissions.",
}
"""What to do when the machine gives no more of something, by the number its kernel says it with."""
