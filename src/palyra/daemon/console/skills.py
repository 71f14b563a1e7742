"""`/console/skills`: where skills stand, what they ask for in words, what speaks against them, and the moves."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from palyra.canon import Json
from palyra.daemon.console.making import Visit, form, page, then, to, to_the, upload
from palyra.daemon.console.rendering import link, render
from palyra.daemon.operators import candidates, trust
from palyra.daemon.operators import skills as acts
from palyra.daemon.operators.answering import installed
from palyra.daemon.routes import Asked
from palyra.skills.bundle import MAX_BYTES


class SkillPage(acts.Versioned):
    said: str = ""


FORM_BYTES = 64 << 10
"""Of the form around a package."""
_WORST_FIRST = {"fail": 0, "warn": 1, "pass": 2}
MOVES = {
    "quarantined": ("enable", "audit", "remove"),
    "active": ("disable", "quarantine", "audit"),
    "disabled": ("enable", "quarantine", "audit", "remove"),
    "failed": ("enable", "quarantine", "audit", "remove"),
}
"""Which forms a skill's page offers; what is really allowed is the life cycle's own to say."""


def difference_of(checks: list[dict[str, Json]]) -> dict[str, Json] | None:
    """What it asks for beyond the version before, as its audit found."""
    found = next((one for one in checks if one["check_id"] == "capability.diff"), None)
    details = found.get("details") if found is not None else None
    return details if isinstance(details, dict) and "from" in details else None


def moves_of(it: dict[str, Any]) -> tuple[str, ...]:
    """Stopping is about the version in use; a page of another one does not offer it."""
    offered = MOVES.get(it["status"], ())
    in_use = it["versions"][0]["sha256"] == it["sha256"]
    return offered if in_use else tuple(move for move in offered if move in ("enable", "audit"))


async def skills_page(asked: Asked) -> Response:
    desk, on = installed(asked).skills, installed(asked).config.skills.builder
    found: Any = await candidates.list_candidates(asked) if on else {"items": ()}
    return render(
        asked,
        "skills.html",
        section="skills",
        skills=desk.list_skills(),
        keys=desk.trust_list(),
        candidates=found["items"],
        builder=on,
    )


async def skill_page(asked: Asked) -> Response:
    it: Any = await acts.show_skill(asked)
    checks = list((it["audit"] or {}).get("checks", ()))
    return render(
        asked,
        "skill.html",
        section="skills",
        it=it,
        checks=sorted(checks, key=lambda one: _WORST_FIRST.get(one["status"], 0)),
        difference=difference_of(checks),
        moves=moves_of(it),
        waiting_versions=[
            one for one in it["versions"] if one["status"] == "quarantined" and one["sha256"] != it["sha256"]
        ],
        has_before=any(one["status"] == "disabled" for one in it["versions"][1:]) and it["status"] == "active",
    )


def _to_installed(asked: Asked, done: Json) -> str:
    it: Any = done
    return link("skills", it["skill_id"], version=it["version"], said="installed")


def _form(move: str, act: Any, body: Any, said: str, says: str) -> Any:
    return form(f"/skills/{{id}}/{move}", then(act, to_the("skills", "id", said=said)), name=f"{move}_skill",
                says=says, body=body)  # fmt: skip


ROUTES = (
    page("/skills", skills_page, name="skills", says="Installed skills.", query=Visit),
    upload("/skills/install", then(acts.upload_skill, _to_installed), name="install_skill", body=acts.Installing,
           says="Install a package, into quarantine.", max_bytes=MAX_BYTES + FORM_BYTES),
    page("/skills/{id}", skill_page, name="skill", says="One skill: versions, capabilities, audit.",
         query=SkillPage),
    _form("enable", acts.enable_skill, acts.Enabling, "enabled", "Allow calls to its tools."),
    _form("disable", acts.disable_skill, acts.Saying, "disabled", "Stop allowing calls to them."),
    _form("quarantine", acts.quarantine_skill, acts.Saying, "quarantined",
          "Take it out of use, and stop its running calls."),
    _form("audit", acts.audit_skill, acts.Versioned, "audited", "Audit it again."),
    _form("review", acts.review_skill, acts.Reviewing, "reviewed", "Record that a person reviewed it."),
    _form("rollback", acts.roll_back_skill, None, "skill-rolled-back", "Return to the previous version."),
    form("/skills/{id}/remove", then(acts.remove_skill, to("skills", said="removed")), name="remove_skill",
         says="Take it away."),
    form("/trust", then(trust.add_trust, to("skills", said="trusted")), name="add_trust", says="Trust a key.",
         body=trust.Trusting),
    form("/trust/{publisher}/revoke", then(trust.revoke_trust, to("skills", said="distrusted")), name="revoke_trust",
         says="Take trust back.", body=trust.Distrusting),
    form("/candidates/{id}/promote", then(candidates.promote_candidate, to("skills", said="promoted")),
         name="promote_candidate", says="Build it, try it, install it into quarantine."),
)  # fmt: skip
