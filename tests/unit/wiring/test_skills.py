"""Skills as calls see them: the approved payload, hashed, and nothing that was changed behind it."""

from __future__ import annotations

import os
import time

import pytest

from palyra.canon import sha256_hex
from palyra.errors import Reason, Rejected, StateError
from palyra.model.tool import Capability, ToolKind
from palyra.model.wasm import GuestKind, StorageGrant
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry
from palyra.skills.capabilities import Capabilities, Quotas, SecretScope
from palyra.wiring.skill_door import SkillDoor
from palyra.wiring.skill_files import SkillFiles
from palyra.wiring.skills import SETTLED_MS, InstalledSkills
from tests.making_skills import House, module, open_house, package, tool
from tests.promises import promise

ASKING = Capabilities(
    http_egress_allowlist=("api.example.com",),
    write_roots=("cache",),
    secrets=(SecretScope(scope="skill:acme.echo", key_names=("token",)),),
    quotas=Quotas(fuel_budget=77, wall_clock_timeout_ms=5),
)


@pytest.fixture
def house(home):
    found = open_house(home).trust_acme()
    found.install(package(capabilities=ASKING))
    found.enable()
    yield found
    found.writer.close()


def refusal(house: House) -> Reason:
    with pytest.raises(Rejected) as caught:
        house.skills.find("acme.echo", version="", tool_id="")
    return caught.value.reason


def folder(house: House):
    return house.files.folder(house.desk.list_skills()[0]["sha256"])


def test_a_tool_is_what_its_manifest_asks_for_and_no_more(house: House):
    found = house.skills.find("acme.echo", version="0.1.0", tool_id="acme.echo")
    assert found == house.skills.find("", version="", tool_id="acme.echo")
    assert found.payload_sha256 == folder(house).name
    assert (found.guest, found.module_sha256) == (GuestKind.CORE, sha256_hex(module()))
    assert found.grants.http == ("api.example.com",)
    assert found.grants.secrets == ("acme.echo.token",)
    assert found.grants.readable_secrets == frozenset()
    assert found.grants.storage == (StorageGrant(prefix="cache", writable=True),)
    assert (found.limits.fuel, found.limits.wall_ms) == (77, 5)
    assert found.capabilities == {
        Capability.NETWORK,
        Capability.SECRETS_READ,
        Capability.FILESYSTEM_READ,
        Capability.FILESYSTEM_WRITE,
    }
    assert house.skills.module(found) == module()


@pytest.mark.parametrize(
    ("skill_id", "version", "tool_id", "reason"),
    [
        ("acme.other", "", "", Reason.SKILL_NOT_ACTIVE),
        ("acme.echo", "0.2.0", "", Reason.SKILL_NOT_ACTIVE),
        ("acme.echo", "", "acme.other", Reason.BAD_ARGUMENTS),
        ("", "", "acme.other", Reason.SKILL_NOT_ACTIVE),
    ],
)
def test_what_is_not_there_is_refused(house: House, skill_id, version, tool_id, reason):
    with pytest.raises(Rejected) as caught:
        house.skills.find(skill_id, version=version, tool_id=tool_id)
    assert caught.value.reason is reason


def test_several_tools_have_to_be_named(home):
    house = open_house(home).trust_acme()
    house.install(package(tools=(tool("acme.a"), tool("acme.b"))))
    house.enable()
    with pytest.raises(Rejected) as caught:
        house.skills.find("acme.echo", version="", tool_id="")
    assert (caught.value.reason, "acme.a, acme.b" in str(caught.value.hint)) == (Reason.BAD_ARGUMENTS, True)


def test_quarantine_counts_at_once_and_in_every_process(house: House):
    other = InstalledSkills(house.writer, house.clock, SkillFiles(house.writer.home.root))
    found = other.find("acme.echo", version="", tool_id="")
    assert other.is_active(found)
    house.do("quarantine", "acme.echo", by="user:alice")
    assert not other.is_active(found)
    with pytest.raises(Rejected) as caught:
        other.find("acme.echo", version="", tool_id="")
    assert caught.value.reason is Reason.SKILL_NOT_ACTIVE
    assert "quarantined" in caught.value.detail


def test_what_cannot_be_started_any_more_has_failed_until_it_is_enabled_again(house: House):
    found = house.skills.find("acme.echo", version="", tool_id="")
    house.skills.fail(found, "wasmtime refuses the module")
    assert house.status() == {"0.1.0": "failed"}
    assert house.acts()[-1] == ("skill.changed", "active", "failed", "palyra")
    assert refusal(house) is Reason.SKILL_NOT_ACTIVE
    house.skills.fail(found, "and again")
    assert house.acts()[-1] == ("skill.changed", "active", "failed", "palyra")
    house.enable()
    assert house.skills.find("acme.echo", version="", tool_id="") == found


# ── tampering ──


def _append(path):
    path.chmod(0o644)
    with path.open("ab") as file:
        file.write(b"\0")


def _swap_for_a_link(path):
    path.rename(path.parent.parent.parent.parent / "moved")
    path.symlink_to(path.parent.parent.parent.parent / "moved")


TAMPERING = {
    "a module with a byte more": lambda at: _append(at / "modules/echo.wasm"),
    "another module of the same size": lambda at: (
        (at / "modules/echo.wasm").chmod(0o644),
        (at / "modules/echo.wasm").write_bytes(module()[::-1]),
    ),
    "a manifest that asks for more": lambda at: _append(at / "skill.toml"),
    "a file more": lambda at: (at / "assets").mkdir() or (at / "assets/x").write_bytes(b""),
    "a file more beside the manifest": lambda at: (at / "loaded-by-nobody").write_bytes(b""),
    "a file less": lambda at: (at / "sbom.cdx.json").unlink(),
    "no folder": lambda at: at.rename(at.with_name("gone")),
    "a link to the same bytes": lambda at: _swap_for_a_link(at / "modules/echo.wasm"),
    "a link instead of the folder": lambda at: (
        at.rename(at.parent.parent / "moved"),
        at.symlink_to(at.parent.parent / "moved"),
    ),
    "a pipe in a file's place": lambda at: (at / "skill.toml").unlink() or os.mkfifo(at / "skill.toml"),
}


@promise("skills.changed-files")
@pytest.mark.parametrize("how", TAMPERING)
@pytest.mark.parametrize("warm", [True, False])
def test_tampered_files_are_refused_quarantined_and_journaled(house: House, how, warm):
    if warm:
        house.skills.find("acme.echo", version="", tool_id="")
    TAMPERING[how](folder(house))
    assert refusal(house) is Reason.SKILL_TAMPERED
    assert house.status() == {"0.1.0": "quarantined"}
    assert house.acts()[-1] == ("skill.changed", "active", "quarantined", "palyra")
    assert refusal(house) is Reason.SKILL_NOT_ACTIVE


@promise("skills.changed-files")
def test_what_runs_are_the_bytes_that_were_hashed(house: House):
    """A file swapped between the check and the run changes nothing that runs."""
    found = house.skills.find("acme.echo", version="", tool_id="")
    _append(folder(house) / "modules/echo.wasm")
    assert house.skills.module(found) == module()
    assert refusal(house) is Reason.SKILL_TAMPERED


@promise("skills.changed-files")
def test_a_swap_while_the_files_are_read_is_seen(house: House, monkeypatch):
    """Swapped after they were hashed and put back before anybody looks: the times tell."""
    path = folder(house) / "modules/echo.wasm"
    read = house.files.read

    def meddling(sha256: str):
        files = read(sha256)
        _append(path)
        return files

    monkeypatch.setattr(house.files, "read", meddling)
    found = house.skills.find("acme.echo", version="", tool_id="")
    assert house.skills.module(found) == module()
    monkeypatch.undo()
    assert refusal(house) is Reason.SKILL_TAMPERED


def test_files_are_hashed_once_until_they_change(house: House, monkeypatch):
    reads = []
    read = house.files.read

    def counted(sha256: str):
        reads.append(sha256)
        return read(sha256)

    monkeypatch.setattr(house.files, "read", counted)
    time.sleep(SETTLED_MS / 1000 + 0.02)
    for _ in range(3):
        house.skills.find("acme.echo", version="", tool_id="")
    assert len(reads) == 1
    os.utime(folder(house) / "skill.toml")
    for _ in range(2):
        house.skills.find("acme.echo", version="", tool_id="")
    assert len(reads) == 3, "what was touched a moment ago could be touched again unseen, so it is not relied on yet"


def test_a_backup_by_hard_links_is_no_tampering(house: House):
    house.skills.find("acme.echo", version="", tool_id="")
    os.link(folder(house) / "skill.toml", folder(house).parent.parent / "backup")
    assert house.skills.find("acme.echo", version="", tool_id="").version == "0.1.0"


def test_files_that_never_came_to_this_machine_are_no_tampering_where_rows_are_shared(house: House):
    house.skills._is_shared = True
    folder(house).rename(folder(house).with_name("elsewhere"))
    assert refusal(house) is Reason.SKILL_NOT_ACTIVE
    assert house.status() == {"0.1.0": "active"}
    house.install(package(capabilities=ASKING))
    assert house.skills.find("acme.echo", version="", tool_id="").version == "0.1.0"


def test_a_journal_that_is_down_is_told_by_the_call_and_not_by_its_name(house: House):
    door = SkillDoor(house.writer, house.clock, house.writer.home.root)
    house.writer.close()
    assert not door.knows("acme.echo")
    with pytest.raises(StateError):
        door.tool("acme.echo")


@promise("skills.changed-files")
def test_changed_bytes_under_the_old_times_are_seen_all_the_same(house: House):
    """mtime is the attacker's to set; ctime is not."""
    path = folder(house) / "modules/echo.wasm"
    house.skills.find("acme.echo", version="", tool_id="")
    seen = path.stat()
    path.chmod(0o644)
    path.write_bytes(module()[::-1])
    path.chmod(0o444)
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert refusal(house) is Reason.SKILL_TAMPERED


def test_a_key_that_is_gone_from_the_rows_stops_its_skills(house: House):
    house.writer.commit_now(lambda tx: tx.execute("DELETE FROM skill_publishers"))
    assert refusal(house) is Reason.SKILL_NOT_ACTIVE
    assert house.status() == {"0.1.0": "quarantined"}


# ── listed under their own names ──


def test_tools_of_enabled_skills_are_in_the_registry(house: House):
    registry = make_registry(BUILTIN_TOOLS).with_source(SkillDoor(house.writer, house.clock, house.writer.home.root))
    assert registry.has("acme.echo")
    spec = registry.get("acme.echo").spec
    assert (spec.kind, spec.provenance) == (ToolKind.PLUGIN, folder(house).name)
    assert spec.output_schema["properties"]["result"]["anyOf"][0] == {"type": "object"}
    assert next(one.name for one in registry.specs()) == "acme.echo"
    house.do("disable", "acme.echo", by="user:alice")
    assert registry.has("acme.echo")
    with pytest.raises(Rejected) as caught:
        registry.get("acme.echo")
    assert caught.value.reason is Reason.SKILL_NOT_ACTIVE
    assert len(registry.specs()) == len(BUILTIN_TOOLS)


def test_names_that_no_skill_has_are_unknown_and_palyras_own_stay_its_own(house: House):
    house.writer.commit_now(lambda tx: tx.execute("INSERT INTO skill_tools SELECT 'palyra.echo', sha256 FROM skills"))
    house.writer.commit_now(lambda tx: tx.execute("INSERT INTO skill_tools SELECT 'evil.tool', sha256 FROM skills"))
    registry = make_registry(BUILTIN_TOOLS).with_source(SkillDoor(house.writer, house.clock, house.writer.home.root))
    assert registry.get("palyra.echo").spec.provenance == "builtin"
    for name in ("acme.nothing", "nothing", "evil.tool"):
        with pytest.raises(Rejected) as caught:
            registry.get(name)
        assert caught.value.reason is Reason.UNKNOWN_TOOL


def test_references_in_a_result_schema_lead_to_where_it_stands_now(home):
    house = open_house(home).trust_acme()
    schema = {"$defs": {"n": {"type": "integer"}}, "type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}}
    house.install(package(tools=(tool(output_schema=schema),)))
    house.enable()
    registered = house.skills.tool("acme.echo")
    assert registered is not None
    plain = {"exit_code": 0, "host_calls": {}}
    assert registered.output_schema.validator.is_valid({"result": {"n": 1}, **plain})
    assert registered.output_schema.validator.is_valid({"result": None, **plain})
    assert not registered.output_schema.validator.is_valid({"result": {"n": "x"}, **plain})
