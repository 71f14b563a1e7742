"""What an operator does with skills: every move is journaled with it, and nothing inherits what another was given."""

from __future__ import annotations

import base64

import pytest

from palyra.config.schema import Config
from palyra.config.skills import SkillsConfig
from palyra.errors import Reason, Rejected
from palyra.signing import SigningKey
from palyra.skills.capabilities import Capabilities
from palyra.skills.findings import Finding, SkillRefused
from palyra.skills.lifecycle import Status
from palyra.skills.trust import sign_rotation
from tests.making_skills import ACME, EVIL, NOW, House, open_house, package, tool
from tests.promises import promise
from tests.stores import audit, tampering

NEW = SigningKey.from_seed(b"new!" * 8)


@pytest.fixture
def opened(home):
    """Opens homes, and closes them afterwards."""
    houses: list[House] = []

    def open_one(config: Config | None = None) -> House:
        houses.append(open_house(home, config))
        return houses[-1]

    yield open_one
    for one in houses:
        one.writer.close()


@pytest.fixture
def house(opened):
    return opened().trust_acme()


def refusal(work, *arguments, **how) -> SkillRefused:
    with pytest.raises(SkillRefused) as caught:
        work(*arguments, **how)
    return caught.value


def key_text(key: SigningKey) -> str:
    return base64.b64encode(key.public.raw).decode()


# ── coming in ──


def test_a_new_skill_lands_in_quarantine_with_its_audit_and_two_entries(house: House):
    done = house.install(package())
    assert (done.standing.status, done.standing.installed_by) == (Status.QUARANTINED, "user:alice")
    assert done.report is not None
    assert done.report.verdict == "pass"
    assert house.acts()[1:] == [
        ("skill.changed", None, "ingested", "user:alice"),
        ("skill.changed", "ingested", "quarantined", "palyra"),
    ]
    assert house.compiler.compiled
    assert house.files.read(done.standing.sha256)
    assert not audit(house.writer.home, alive=True).findings


def test_an_unknown_publisher_is_taken_on_first_use_only_when_asked(opened):
    house = opened()
    assert refusal(house.install, package()).finding is Finding.TRUST_UNKNOWN
    assert house.acts() == []
    house.install(package(), tofu=True)
    assert house.acts()[0] == ("trust.changed", None, "trusted", "user:alice")
    assert house.desk.trust_list()[0]["how"] == "tofu"


@promise("skills.signed-package")
def test_first_use_never_replaces_a_key_that_is_known_or_revoked(house: House):
    stolen = package(key=EVIL)
    assert refusal(house.install, stolen, tofu=True).finding is Finding.TRUST_KEY_CHANGED
    house.do("trust_revoke", "acme", by="user:alice")
    assert refusal(house.install, stolen, tofu=True).finding is Finding.TRUST_KEY_CHANGED
    assert refusal(house.install, package(), tofu=True).finding is Finding.TRUST_REVOKED


def test_first_use_does_not_mend_a_row_that_somebody_edited(house: House):
    house.writer.commit_now(lambda tx: tx.execute("UPDATE skill_publishers SET seal = ?", (b"no",)))
    assert refusal(house.install, package(), tofu=True).finding is Finding.TRUST_UNKNOWN


@promise("skills.update-review")
def test_an_update_never_inherits_what_the_old_version_was_given(house: House):
    house.install(package())
    house.enable()
    house.do("update", package(version="0.2.0"), by="user:alice")
    assert house.status() == {"0.1.0": "active", "0.2.0": "quarantined"}
    assert house.skills.find("acme.echo", version="", tool_id="").version == "0.1.0"


def test_an_update_wants_something_to_update(house: House):
    assert refusal(house.do, "update", package(), by="user:alice").finding is Finding.LIFE_ABSENT


@promise("skills.signed-package")
def test_a_downgrade_is_refused_without_the_flag(house: House):
    house.install(package(version="1.0.0"))
    assert refusal(house.install, package(version="0.9.0")).finding is Finding.DOWNGRADE
    assert refusal(house.install, package(version="1.0.0-rc.1")).finding is Finding.DOWNGRADE
    assert house.status() == {"1.0.0": "quarantined"}
    house.install(package(version="0.9.0"), allow_downgrade=True)
    assert house.status() == {"1.0.0": "quarantined", "0.9.0": "quarantined"}


def test_the_same_version_with_other_content_is_refused(house: House):
    house.install(package())
    other = package(capabilities=Capabilities(channels=("news",)))
    assert refusal(house.install, other).finding is Finding.VERSION_REUSED


def test_installing_the_same_again_changes_nothing(house: House):
    house.install(package())
    house.enable()
    before = house.acts()
    again = house.install(package())
    assert (again.changed, again.standing.status) == (False, Status.ACTIVE)
    assert house.acts() == before


def test_the_same_payload_signed_by_another_key_waits_again(house: House):
    house.install(package())
    house.enable()
    house.do("trust_add", "acme", key_text(NEW), by="user:alice")
    again = house.install(package(key=NEW))
    assert (again.standing.status, again.standing.key_id) == (Status.QUARANTINED, NEW.key_id)


def test_installing_mends_changed_files_and_quarantines_what_ran_with_them(house: House):
    done = house.install(package())
    house.enable()
    file = house.files.folder(done.standing.sha256) / "modules/echo.wasm"
    file.chmod(0o644)
    file.write_bytes(b"\0asm evil")
    again = house.install(package())
    assert again.standing.status is Status.QUARANTINED
    assert house.files.read(done.standing.sha256)


def test_a_refused_package_leaves_nothing_behind(house: House):
    before = (house.acts(), house.writer.rows("SELECT count(*) FROM skills"))
    refusal(house.install, package(key=EVIL))
    assert (house.acts(), house.writer.rows("SELECT count(*) FROM skills")) == before
    assert not house.files.root.exists() or not list(house.files.root.iterdir())


def test_a_failing_audit_keeps_it_in_quarantine_until_somebody_gives_a_reason(house: House):
    house.compiler.refuses = Rejected(Reason.BAD_ARGUMENTS, "The module could not be compiled within its limits: time")
    done = house.install(package())
    assert done.standing.reason == "audit failed: module.compile"
    assert refusal(house.enable).finding is Finding.LIFE_AUDIT
    forced = house.enable(override_reason="it compiles on the build machine")
    assert (forced.standing.status, forced.standing.override) == (
        Status.ACTIVE,
        "it compiles on the build machine",
    )


# ── moves ──


def test_enabling_another_version_puts_the_old_one_away_and_rolling_back_returns_to_it(house: House):
    house.install(package())
    house.enable()
    house.install(package(version="0.2.0"))
    house.enable()
    assert house.status() == {"0.1.0": "disabled", "0.2.0": "active"}
    house.do("rollback", "acme.echo", by="user:bob")
    assert house.status() == {"0.1.0": "active", "0.2.0": "disabled"}
    assert house.acts()[-2:] == [
        ("skill.changed", "active", "disabled", "user:bob"),
        ("skill.changed", "disabled", "active", "user:bob"),
    ]
    assert refusal(house.do, "rollback", "acme.echo", by="user:bob").finding is Finding.LIFE_ABSENT


def test_after_a_rollback_enabling_does_not_bring_back_the_version_rolled_back_from(house: House):
    house.install(package())
    house.enable()
    house.install(package(version="0.2.0"))
    house.enable()
    house.do("rollback", "acme.echo", by="user:bob")
    refused = refusal(house.enable)
    assert (refused.finding, "--version" in (refused.hint or "")) == (Finding.LIFE_MOVE, True)
    house.do("disable", "acme.echo", by="user:bob")
    house.enable()
    assert house.status() == {"0.1.0": "active", "0.2.0": "disabled"}
    house.install(package(version="0.3.0"))
    house.enable()
    assert house.status() == {"0.1.0": "disabled", "0.2.0": "disabled", "0.3.0": "active"}
    house.enable(version="0.2.0")
    assert house.status()["0.2.0"] == "active"


def test_a_bad_update_is_quarantined_and_rolled_back(house: House):
    house.install(package())
    house.enable()
    house.install(package(version="0.2.0"))
    house.enable()
    house.do("quarantine", "acme.echo", by="user:alice", reason="calls home")
    house.do("rollback", "acme.echo", by="user:alice")
    assert house.status() == {"0.1.0": "active", "0.2.0": "quarantined"}
    assert refusal(house.enable).finding is Finding.LIFE_MOVE
    assert house.status() == {"0.1.0": "active", "0.2.0": "quarantined"}


def test_a_payload_that_was_never_enabled_is_not_rolled_back_to(house: House):
    house.install(package())
    house.install(package(version="0.2.0"))
    house.enable()
    assert refusal(house.do, "rollback", "acme.echo", by="user:alice").finding is Finding.LIFE_ABSENT


def test_rolling_back_to_changed_files_is_refused_and_quarantines_them(house: House):
    old = house.install(package()).standing
    house.enable()
    house.install(package(version="0.2.0"))
    house.enable()
    (house.files.folder(old.sha256) / "skill.toml").unlink()
    assert refusal(house.do, "rollback", "acme.echo", by="user:alice").finding is Finding.TAMPERED
    assert house.status() == {"0.1.0": "quarantined", "0.2.0": "active"}


def test_disabling_and_enabling_again(house: House):
    house.install(package())
    house.enable()
    assert refusal(house.enable).finding is Finding.LIFE_MOVE
    house.do("disable", "acme.echo", by="user:alice")
    assert house.status() == {"0.1.0": "disabled"}
    assert refusal(house.do, "disable", "acme.echo", by="user:alice").finding is Finding.LIFE_MOVE
    house.enable()
    assert house.status() == {"0.1.0": "active"}


def test_removal_keeps_the_history_and_takes_the_files(house: House):
    done = house.install(package())
    house.enable()
    house.writer.commit_now(lambda tx: tx.execute("INSERT INTO guest_values VALUES ('acme.echo', 'k', ?)", (b"v",)))
    house.do("remove", "acme.echo", by="user:alice")
    assert house.status() == {"0.1.0": "removed"}
    assert not house.files.folder(done.standing.sha256).exists()
    assert house.desk.list_skills() == []
    shown = house.desk.show_skill("acme.echo")
    assert (shown["status"], shown["audit"]["verdict"], shown["name"]) == ("removed", "pass", "Echo")
    assert house.writer.rows("SELECT count(*) FROM guest_values") == [(0,)]
    assert refusal(house.do, "remove", "acme.echo", by="user:alice").finding is Finding.LIFE_ABSENT
    again = house.install(package())
    assert (again.standing.status, again.standing.enabled_by) == (Status.QUARANTINED, "")


@promise("skills.tool-ids")
def test_two_skills_cannot_have_one_tool_enabled(house: House):
    house.install(package("acme.one", tools=(tool("acme.shared"),)))
    house.install(package("acme.two", tools=(tool("acme.shared"),)))
    house.enable("acme.one")
    assert refusal(house.enable, "acme.two").finding is Finding.TOOL_TAKEN
    house.do("disable", "acme.one", by="user:alice")
    house.enable("acme.two")


def test_four_eyes_want_another_person(opened):
    house = opened(Config(skills=SkillsConfig(four_eyes=True))).trust_acme()
    house.install(package(), by="user:alice")
    assert refusal(house.enable, by="user:alice").finding is Finding.LIFE_SECOND_PERSON
    assert refusal(house.enable, by="user:alice", override_reason="please").finding is Finding.LIFE_SECOND_PERSON
    assert house.enable(by="user:bob").standing.enabled_by == "user:bob"


def test_a_review_is_recorded_for_one_payload(house: House):
    house.install(package(review_required=True))
    assert refusal(house.enable).finding is Finding.LIFE_REVIEW
    house.do("review", "acme.echo", by="user:carol", notes="read the source")
    house.enable()
    house.install(package(version="0.2.0", review_required=True))
    assert refusal(house.enable).finding is Finding.LIFE_REVIEW
    assert house.enable(override_reason="reviewed: same as before").standing.override


# ── trust ──


def test_revoking_stops_the_publishers_skills_in_the_same_commit(house: House):
    house.install(package())
    house.enable()
    found = house.do("trust_revoke", "acme", by="user:alice", reason="key leaked")
    assert found["quarantined"] == ["acme.echo 0.1.0"]
    assert house.status() == {"0.1.0": "quarantined"}
    entries = house.writer.rows("SELECT idx FROM entries")
    heads = house.writer.rows("SELECT size FROM checkpoints ORDER BY size DESC LIMIT 2")
    assert heads[0][0] == len(entries)
    assert heads[0][0] - heads[1][0] == 2, "the key and the skill in one commit"
    assert refusal(house.enable).finding is Finding.TRUST_REVOKED
    assert refusal(house.enable, override_reason="but i need it").finding is Finding.TRUST_REVOKED


def test_revoking_one_key_leaves_what_the_other_signed(house: House):
    house.do("trust_add", "acme", key_text(NEW), by="user:alice")
    house.install(package("acme.one"))
    house.install(package("acme.two", key=NEW))
    house.enable("acme.one")
    house.enable("acme.two")
    house.do("trust_revoke", "acme", by="user:alice", key_id=ACME.key_id)
    assert (house.status("acme.one"), house.status("acme.two")) == ({"0.1.0": "quarantined"}, {"0.1.0": "active"})


@promise("skills.signed-package")
def test_a_revoked_key_is_not_pinned_again(house: House):
    house.do("trust_revoke", "acme", by="user:alice")
    assert refusal(house.trust_acme).finding is Finding.TRUST_REVOKED


def test_a_rotation_brings_the_new_key_and_retires_the_old(house: House):
    house.install(package())
    house.enable()
    statement = sign_rotation("acme", ACME, NEW.public, at_unix_ms=NOW)
    house.do("trust_rotate", statement, by="user:alice")
    assert refusal(house.install, package(version="0.2.0")).finding is Finding.TRUST_EXPIRED
    house.install(package(version="0.2.0", key=NEW))
    assert house.status() == {"0.1.0": "active", "0.2.0": "quarantined"}
    assert refusal(house.do, "trust_rotate", statement, by="user:alice").finding is Finding.TRUST_ROTATION


def test_a_rotation_does_not_lengthen_the_trust_an_operator_gave(opened):
    house = opened()
    house.do("trust_add", "acme", key_text(ACME), by="user:alice", valid_until_unix_ms=NOW + 5000)
    house.do("trust_rotate", sign_rotation("acme", ACME, NEW.public, at_unix_ms=NOW), by="user:alice")
    house.install(package(key=NEW))
    house.clock.now += 10_000
    assert refusal(house.install, package(version="0.2.0", key=NEW)).finding is Finding.TRUST_EXPIRED


def test_weak_keys_and_names_that_are_none_are_not_pinned(house: House):
    assert refusal(house.do, "trust_add", "acme", "00" * 32, by="u").finding is Finding.TRUST_WEAK_KEY
    for name in ("acme ", "Acme", "palyra", ""):
        assert refusal(house.do, "trust_add", name, key_text(EVIL), by="u").finding is Finding.MANIFEST_PUBLISHER


def test_a_key_that_runs_out_signs_nothing_new_and_what_it_signed_stands(opened):
    house = opened()
    house.do("trust_add", "acme", key_text(ACME), by="user:alice", valid_until_unix_ms=NOW + 1000)
    house.install(package())
    house.enable()
    house.clock.now += 10_000
    assert refusal(house.install, package(version="0.2.0")).finding is Finding.TRUST_EXPIRED
    assert house.skills.find("acme.echo", version="", tool_id="")


# ── audits ──


def test_an_audit_that_fails_later_quarantines(house: House, opened, tmp_path):
    feed = tmp_path / "feed.json"
    feed.write_text('{"digests": [], "publishers": []}')
    watched = opened(Config(skills=SkillsConfig(known_bad_feed=str(feed))))
    watched.install(package())
    watched.enable()
    assert not watched.do("audit", "acme.echo", by="user:alice").changed
    feed.write_text('{"digests": [], "publishers": ["acme"]}')
    done = watched.do("audit", "acme.echo", by="user:alice")
    assert (done.standing.status, done.standing.reason) == (Status.QUARANTINED, "audit failed: feed.known_bad")
    assert len(watched.desk.reports("acme.echo")) == 3


def test_what_only_no_longer_compiles_has_failed_and_is_enabled_after_repair(house: House):
    house.install(package())
    house.enable()
    house.compiler.refuses = Rejected(Reason.BAD_ARGUMENTS, "The module could not be compiled.")
    assert house.do("audit", "acme.echo", by="user:alice").standing.status is Status.FAILED
    house.compiler.refuses = None
    house.do("audit", "acme.echo", by="user:alice")
    assert house.enable().standing.status is Status.ACTIVE


def test_an_audit_sees_changed_files(house: House):
    done = house.install(package())
    house.enable()
    (house.files.folder(done.standing.sha256) / "extra").write_bytes(b"")
    audited = house.do("audit", "acme.echo", by="user:alice")
    assert audited.report.failures == ("files.tampered",)
    assert audited.standing.status is Status.QUARANTINED


def test_skills_are_audited_again_when_their_time_has_come(house: House):
    house.install(package())
    house.enable()
    assert house.do("audit_due") == ()
    house.clock.now += 25 * 3_600_000
    assert [done.standing.skill_id for done in house.do("audit_due")] == ["acme.echo"]
    assert house.do("audit_due") == ()


def test_a_package_is_audited_without_being_installed(house: House):
    assert {check.status for check in house.do("audit_file", package())} == {"pass"}
    wrong = house.do("audit_file", package(key=EVIL))
    assert wrong[0].check_id == "trust.key_changed"
    assert house.do("audit_file", b"PK")[0].check_id == "artifact.header"
    assert house.status() == {}


# ── a tampered index ──


@promise("skills.edited-rows")
@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE skills SET status = 'active'",
        "UPDATE skills SET status = 'active', enabled_by = 'user:alice', reason = 'enabled'",
        "UPDATE skills SET version = '9.9.9'",
    ],
)
def test_a_row_that_somebody_edited_counts_for_nothing(house: House, edit):
    house.install(package())
    with tampering(house.writer.home) as other:
        other.execute(edit)
    assert list(house.skills.specs()) == []
    with pytest.raises(Rejected) as caught:
        house.skills.tool("acme.echo")
    assert caught.value.reason is Reason.SKILL_TAMPERED
    assert list(house.status().values()) == ["quarantined"]
    assert house.acts()[-1] == ("skill.changed", None, "quarantined", "palyra")
    with pytest.raises(Rejected) as caught:
        house.skills.find("acme.echo", version="", tool_id="")
    assert caught.value.reason is Reason.SKILL_NOT_ACTIVE


def test_an_edited_row_is_shown_in_quarantine_and_runs_when_it_was_installed_again(house: House):
    house.install(package())
    with tampering(house.writer.home) as other:
        other.execute("UPDATE skills SET status = 'active', enabled_by = 'user:alice'")
    (shown,) = house.desk.list_skills()
    assert (shown["status"], shown["reason"]) == ("quarantined", "its row in the index was not what was recorded")
    house.enable()
    with pytest.raises(Rejected):
        house.skills.find("acme.echo", version="", tool_id="")
    assert house.install(package()).changed
    house.enable()
    assert house.skills.find("acme.echo", version="", tool_id="").version == "0.1.0"


def test_a_seal_of_one_payload_does_not_fit_another(house: House):
    house.install(package())
    house.enable()
    house.install(package(version="0.2.0"))
    with tampering(house.writer.home) as other:
        other.execute("UPDATE skills SET status = 'disabled' WHERE version = '0.1.0'")
        other.execute(
            "UPDATE skills SET status = 'active', seal = (SELECT seal FROM skills WHERE version = '0.1.0') "
            "WHERE version = '0.2.0'"
        )
    with pytest.raises(Rejected) as caught:
        house.skills.find("acme.echo", version="", tool_id="")
    assert caught.value.reason is Reason.SKILL_TAMPERED
    assert house.status() == {"0.1.0": "quarantined", "0.2.0": "quarantined"}


@promise("skills.edited-rows")
def test_a_pin_that_somebody_edited_is_no_pin(house: House):
    house.install(package())
    house.enable()
    house.do("trust_revoke", "acme", by="user:alice")
    with tampering(house.writer.home) as other:
        other.execute("UPDATE skill_publishers SET revoked_unix_ms = NULL")
    assert refusal(house.install, package(version="0.2.0")).finding is Finding.TRUST_UNKNOWN
    assert house.desk.trust_list() == []


@promise("skills.edited-rows")
def test_a_report_that_somebody_wrote_is_none(house: House):
    house.compiler.refuses = Rejected(Reason.BAD_ARGUMENTS, "It does not compile.")
    house.install(package())
    with tampering(house.writer.home) as other:
        other.execute("""UPDATE skill_reports SET body = CAST(replace(body, '"fail"', '"pass"') AS BLOB)""")
    assert refusal(house.enable).finding is Finding.LIFE_AUDIT


def test_an_old_row_that_is_put_back_is_found_by_an_audit_and_by_verify(house: House):
    """It is signed, so it counts; but the entry that took it back is in the journal."""
    house.install(package())
    house.enable()
    old = house.writer.rows("SELECT * FROM skills")[0]
    house.do("quarantine", "acme.echo", by="user:alice", reason="calls home")
    with tampering(house.writer.home) as other:
        marks = ", ".join("?" * len(old))
        other.execute("DELETE FROM skills")
        other.execute(f"INSERT INTO skills VALUES ({marks})", old)
    (finding,) = audit(house.writer.home, alive=True).findings
    assert old[0] in finding.detail
    done = house.do("audit", "acme.echo", by="user:alice")
    assert (done.report.failures, done.standing.status) == (("files.tampered",), Status.QUARANTINED)
    assert not audit(house.writer.home, alive=True).findings


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE skills SET status = 'active'",
        "DELETE FROM skills",
        "DELETE FROM skill_publishers",
        "UPDATE skill_publishers SET revoked_unix_ms = NULL",
    ],
)
def test_edited_rows_are_found_by_verify(house: House, edit):
    house.install(package())
    house.do("trust_revoke", "acme", by="user:alice")
    assert not audit(house.writer.home, alive=True).findings
    with tampering(house.writer.home) as other:
        other.execute(edit)
    (finding,) = audit(house.writer.home, alive=True).findings
    assert finding.code == "KEPT"
