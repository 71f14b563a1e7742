"""A refused call, its one-line repair, and what it does not open; policies that need repair. By every interface."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from palyra.api import Palyra
from palyra.policy.scan import PolicyError
from palyra.wiring.embedded import Installation
from tests.command_line import Cli
from tests.consoles import World, world
from tests.daemons import OPERATOR
from tests.e2e.test_mcp import connected, serving
from tests.markup import Markup
from tests.promises import promise

NO_LS = '@id("local.no-ls") forbid (principal, action, resource) when { context.program == "ls" };\n'
FAULTS = {"no Cedar": "permit (;", "an id twice": NO_LS + NO_LS}


def said(cli: Cli, *args: str) -> tuple[int, dict[str, Any]]:
    done = cli(*args, "--json")
    return done.returncode, json.loads(done.stdout)


def acts(cli: Cli) -> list[dict[str, Any]]:
    items = said(cli, "journal", "tail", "-n", "100")[1]["items"]
    return [item["entry"]["predicate"] for item in items if "act" in item["entry"]["predicate"]]


def refused(cli: Cli, *argv: str, who: str = "agent:demo", run: str = "") -> str:
    words = {"command": argv[0], "args": list(argv[1:])}
    more = ("--run", run) if run else ()
    outcome = cli.outcome("call", "palyra.process.run", json.dumps(words), "--as", who, "--json", *more)
    assert outcome["status"] == "refused", outcome
    assert outcome["operator_hint"] == f"palyra policy allow {outcome['call_id']}"
    return str(outcome["call_id"])


def runs(cli: Cli, *argv: str, who: str = "agent:demo", run: str = "") -> bool:
    words = {"command": argv[0], "args": list(argv[1:])}
    more = ("--run", run) if run else ()
    return bool(
        cli.outcome("call", "palyra.process.run", json.dumps(words), "--as", who, "--json", *more)["status"]
        == "completed"
    )


def take_first_suggestion(cli: Cli, call_id: str) -> dict[str, Any]:
    changes = said(cli, "policy", "explain", call_id)[1]["changes"]
    program, *words = changes[0]["text"].split()
    assert (program, changes[0]["scope"]) == ("palyra", "call")
    code, made = said(cli, *words)
    assert code == 0
    return made


def test_two_suggestions_of_two_refused_calls_are_taken_and_everything_goes_on(cli: Cli):
    """It was: policy text for local.cedar, twice the same @id, and every call of the home ended with exit 125."""
    assert cli("init").returncode == 0
    calls = [refused(cli, "bash", "-c", "echo A"), refused(cli, "bash", "-c", "echo B")]
    made = [take_first_suggestion(cli, call) for call in calls]
    assert runs(cli, "bash", "-c", "echo A")
    assert runs(cli, "bash", "-c", "echo B")
    refused(cli, "bash", "-c", "echo C")
    refused(cli, "bash", "-c", "echo A", who="agent:other")
    assert runs(cli, "ls")
    files = sorted(path.name for path in (cli.home / "policies").glob("allow.*"))
    assert files == sorted(f"{one['id']}.cedar" for one in made)
    assert not any("forbid" in (cli.home / "policies" / name).read_text() for name in files)
    shown = {item["id"]: item for item in said(cli, "policy", "show")[1]["items"]}
    assert (
        shown[made[0]["id"]]["lifts"] == made[0]["lifts"] == ["guard.10-interpreter", "guard.20-executable-not-listed"]
    )

    assert said(cli, "policy", "disallow", made[0]["id"]) == (
        0,
        {"ok": True, **{k: made[0][k] for k in ("id", "file")}},
    )
    refused(cli, "bash", "-c", "echo A")
    assert runs(cli, "bash", "-c", "echo B")
    assert said(cli, "policy", "disallow", made[0]["id"])[0] == 1
    told = [(act["act"], act["details"].get("call_id")) for act in acts(cli)]
    assert told == [("policy.allowed", calls[0]), ("policy.allowed", calls[1]), ("policy.disallowed", None)]
    assert cli("journal", "verify", "--replay").returncode == 0


def test_a_dry_run_shows_the_exception_and_its_difference_and_changes_nothing(cli: Cli):
    first, _ = refused(cli, "lscpu", "--version"), refused(cli, "lscpu", "--help")
    code, value = said(cli, "policy", "allow", first, "--for", "program", "--dry-run")
    assert (code, value["dry_run"], value["replay"]["flips"], value["replay"]["calls"]) == (0, True, 2, 2)
    assert not Path(value["file"]).exists()
    refused(cli, "lscpu", "--version")
    done = cli("policy", "allow", first, "--dry-run")
    assert b"1 of 3 recorded calls" not in done.stdout
    assert b"2 of 3 recorded calls would be decided otherwise\n" in done.stdout, "--version was called twice"
    assert b'@lifts("guard.20-executable-not-listed")\n' in done.stdout


def test_each_scope_covers_what_it_says(cli: Cli):
    run, other = "01ARZ3NDEKTSV4RRFFQ69G5FAV", "01ARZ3NDEKTSV4RRFFQ69G5FAW"
    call = refused(cli, "lscpu", "--version", run=run)
    assert said(cli, "policy", "allow", call, "--for", "run")[0] == 0
    assert runs(cli, "lscpu", "--help", run=run)
    refused(cli, "lscpu", "--help", run=other)
    assert said(cli, "policy", "allow", refused(cli, "lscpu", "--version"), "--for", "program")[0] == 0
    assert runs(cli, "lscpu", "--help", run=other)
    refused(cli, "lscpu", "--help", who="agent:other")
    assert said(cli, "policy", "allow", refused(cli, "lscpu", "-V", who="user:x"), "--for", "always")[0] == 0
    assert runs(cli, "lscpu", "--help", who="agent:other")
    refused(cli, "getconf", "--version")
    refused(cli, "find", ".", "-exec", "lscpu", "--version", ";")


@promise("policy.exception-scope")
def test_an_exception_for_one_wrapped_program_is_none_for_another(cli: Cli):
    call = refused(cli, "find", ".", "-exec", "lscpu", "--version", ";")
    assert said(cli, "policy", "allow", call, "--for", "program")[0] == 0
    assert runs(cli, "find", ".", "-maxdepth", "0", "-exec", "lscpu", "--version", ";")
    for argv in (("find", ".", "-exec", "pathchk", "--version", ";"), ("lscpu", "--version"),
                 ("find", ".", "-exec", "lscpu", "--version", ";", "-exec", "pathchk", "--version", ";"),
                 ("find", ".", "-exec", "bash", "-c", "lscpu", ";")):  # fmt: skip
        refused(cli, *argv)


@promise("policy.exception-scope")
def test_what_arguments_alone_make_code_is_allowed_with_these_arguments_only(cli: Cli):
    def paged(pager: str) -> tuple[str, ...]:
        return ("git", "-c", f"core.pager={pager}", "--paginate", "version")

    call = refused(cli, *paged("one"))
    assert said(cli, "policy", "allow", call, "--for", "program")[0] == 0
    assert cli.outcome("run", "--as", "agent:demo", "--json", "--", *paged("one"))["status"] == "completed"
    refused(cli, *paged("two"))


@pytest.mark.parametrize(
    ("tool", "given", "why"),
    [
        ("palyra.process.run", '{"command": "ls", "argz": 1}', "before policies decided"),
        ("palyra.process.run", '{"command": "nowhere-to-be-found"}', "a program that does not exist cannot run"),
        ("palyra.no.such", "{}", "no decided call"),
    ],
)
def test_what_no_exception_can_lift_offers_none_and_says_why(cli: Cli, tool: str, given: str, why: str):
    done = cli("call", tool, given)
    assert (done.returncode, b"policy allow" in done.stderr) == (126, False)
    outcome = cli.outcome("call", tool, given, "--json")
    assert outcome["operator_hint"] is None
    code, value = said(cli, "policy", "allow", outcome["call_id"])
    assert (code, why in value["error"]) == (1, True), value
    assert not [*(cli.home / "policies").glob("allow.*")]


def test_a_call_that_ran_one_that_is_allowed_by_now_and_one_that_never_was_get_no_exception(cli: Cli):
    ran = cli.outcome("run", "--json", "--", "ls")["call_id"]
    assert "was not refused" in said(cli, "policy", "allow", ran)[1]["error"]
    assert "no decided call" in said(cli, "policy", "allow", "01ARZ3NDEKTSV4RRFFQ69G5FAV")[1]["error"]
    call = refused(cli, "lscpu", "--version")
    assert said(cli, "policy", "allow", call)[0] == 0
    code, value = said(cli, "policy", "allow", call)
    assert (code, "The policies of now allow this call" in value["error"]) == (1, True)
    assert len([*(cli.home / "policies").glob("allow.*")]) == 1


def test_an_id_that_leads_elsewhere_takes_nothing_away(cli: Cli):
    assert cli("init").returncode == 0
    before = sorted(path.name for path in (cli.home / "policies").iterdir())
    for name in ("local", "../policies/local", "allow.", "allow.../local", "allow.01ARZ3NDEKTSV4RRFFQ69G5FAV/../local"):
        assert said(cli, "policy", "disallow", name)[0] == 1
    assert sorted(path.name for path in (cli.home / "policies").iterdir()) == before


def test_a_path_outside_is_allowed_for_its_call_and_the_sandbox_stays(cli: Cli, tmp_path: Path):
    outside = tmp_path / "outside.txt"
    outside.write_text("not shown")
    outcome = cli.outcome("run", "--json", "--", "cat", str(outside))
    assert (outcome["reason"], outcome["operator_hint"]) == ("OUTSIDE_WORKSPACE", None), "--read is what helps"
    assert said(cli, "policy", "allow", outcome["call_id"], "--for", "program")[0] == 1
    code, made = said(cli, "policy", "allow", outcome["call_id"])
    assert (code, made["note"][:46]) == (0, "The sandbox still shows no other folder and re")
    done = cli("run", "--", "cat", str(outside))
    assert (done.returncode, b"not shown" in done.stdout) == (1, False)


def test_a_version_in_use_and_a_rollback_leave_exceptions_in_force(cli: Cli, tmp_path: Path):
    assert said(cli, "policy", "allow", refused(cli, "lscpu", "--version"))[0] == 0
    folder = tmp_path / "new"
    folder.mkdir(mode=0o700)
    (folder / "mine.cedar").write_text(NO_LS)
    assert said(cli, "policy", "use", str(folder))[0] == 0
    assert runs(cli, "lscpu", "--version")
    made = said(cli, "policy", "allow", refused(cli, "lscpu", "--help"))[1]
    assert runs(cli, "lscpu", "--help")
    assert cli("policy", "rollback").returncode == 0
    assert runs(cli, "lscpu", "--help")
    assert said(cli, "policy", "disallow", made["id"])[0] == 0
    refused(cli, "lscpu", "--help")


def test_a_candidate_in_shadow_mode_is_asked_with_the_homes_exceptions(cli: Cli, tmp_path: Path):
    assert cli("init").returncode == 0
    folder = tmp_path / "new"
    folder.mkdir(mode=0o700)
    (folder / "mine.cedar").write_text(NO_LS)
    with (cli.home / "palyra.toml").open("a") as config:
        config.write(f'\n[policy]\nmode = "shadow"\ncandidate = "{folder}"\n')
    assert said(cli, "policy", "allow", refused(cli, "lscpu", "--version"))[0] == 0
    commands = (("lscpu", "--version"), ("ls",))
    outcomes = [cli.outcome("run", "--as", "agent:demo", "--json", "--", *argv) for argv in commands]
    shadows = [said(cli, "journal", "show", one["call_id"])[1]["details"]["shadow"] for one in outcomes]
    assert (shadows[0], shadows[1]["effect"]) == (None, "deny")


def test_a_process_that_runs_obeys_an_exception_and_its_end(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    from palyra.policy import store

    monkeypatch.setattr(store, "LOOK_AGAIN_SECONDS", 0.0)
    words = {"command": "lscpu", "args": ["--version"]}
    with Palyra.open(str(cli.home)) as palyra:
        run = palyra.run("agent:demo", str(cli.workspace))
        assert not run.call("palyra.process.run", words).success
        made = said(cli, "policy", "allow", refused(cli, "lscpu", "--version"))[1]
        assert run.call("palyra.process.run", words).success
        assert said(cli, "policy", "disallow", made["id"])[0] == 0
        assert not run.call("palyra.process.run", words).success


# ── policies that need repair ──


@pytest.mark.parametrize("fault", FAULTS)
def test_policies_that_need_repair_are_said_everywhere_and_the_last_good_ones_decide(cli: Cli, fault: str):
    assert cli("init").returncode == 0
    local = cli.home / "policies" / "local.cedar"
    local.write_text(NO_LS)
    good = cli.outcome("run", "--json", "--", "ls")
    assert (good["reason"], good["policy_stale"]) == ("POLICY_DENIED", None)
    local.write_text(FAULTS[fault])
    stale = cli.outcome("run", "--json", "--", "ls")
    assert stale["reason"] == "POLICY_DENIED"
    assert "The policy files need repair" in stale["policy_stale"]
    assert stale["attestation"]["policy_sha256"] == good["attestation"]["policy_sha256"]
    assert "local.cedar" not in stale["policy_stale"], "where policies lie is no caller's"
    assert "need repair" in cli.outcome("call", "palyra.echo", "{", "--json")["policy_stale"]
    ran = cli("run", "--", "cat", "/dev/null")
    assert (ran.returncode, b"The policy files need repair" in ran.stderr) == (0, True)
    doctor = cli("doctor")
    assert (doctor.returncode, b"local.cedar:" in doctor.stdout) == (1, True)
    assert "local.cedar:" in said(cli, "policy", "show")[1]["stale"]
    assert said(cli, "policy", "check")[0] == 1
    local.write_text("")
    assert cli.outcome("run", "--json", "--", "ls")["policy_stale"] is None
    assert [act["act"] for act in acts(cli)] == ["policy.stale", "policy.repaired"]


def test_with_strict_policies_that_need_repair_refuse_every_call(cli: Cli):
    assert cli("init").returncode == 0
    assert cli("run", "--", "ls").returncode == 0
    (cli.home / "policies" / "local.cedar").write_text("permit (;")
    assert cli("run", "--", "ls").returncode == 0
    config = cli.home / "palyra.toml"
    config.write_text(config.read_text() + "\n[policy]\nstrict = true\n")
    done = cli("run", "--", "ls")
    assert (done.returncode, b"local.cedar:1: The policy that begins here" in done.stderr) == (125, True)


def test_a_file_that_cannot_be_read_refuses_with_or_without_last_good_policies(cli: Cli):
    assert cli("init").returncode == 0
    assert cli("run", "--", "ls").returncode == 0
    local = cli.home / "policies" / "local.cedar"
    local.chmod(0o666)
    done = cli("run", "--", "ls")
    assert (done.returncode, b"Everyone on this machine can write here" in done.stderr) == (125, True)


def test_a_process_that_runs_refuses_what_it_cannot_read_until_it_can(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    from palyra.policy import store

    monkeypatch.setattr(store, "LOOK_AGAIN_SECONDS", 0.0)
    assert cli("init").returncode == 0
    local = cli.home / "policies" / "local.cedar"
    with Palyra.open(str(cli.home)) as palyra:
        run = palyra.run("agent:demo", str(cli.workspace))
        assert run.call("palyra.echo", {}).success
        local.write_text("permit (;")
        stale = run.call("palyra.echo", {})
        assert (stale.success, "need repair" in (stale.policy_stale or "")) == (True, True)
        local.chmod(0o666)
        shut = run.call("palyra.echo", {})
        assert (shut.status, shut.reason) == ("refused", "POLICY_ERROR")
        assert str(cli.home) not in f"{shut.message}{shut.hint}"
        local.chmod(0o600)
        local.write_text("")
        whole = run.call("palyra.echo", {})
        assert (whole.success, whole.policy_stale) == (True, None)


def test_palyra_mcp_says_at_its_start_that_policies_need_repair(cli: Cli):
    assert cli("init").returncode == 0
    assert cli("run", "--", "ls").returncode == 0
    (cli.home / "policies" / "local.cedar").write_text("permit (;")
    done = cli("mcp", stdin=b"")
    assert (done.returncode, b"The policy files need repair" in done.stderr) == (0, True), done.stderr


def test_over_mcp_the_agent_gets_the_operators_command_apart_and_the_repair_works(tmp_path: Path):
    home, workspace = tmp_path / "home", tmp_path / "work"
    workspace.mkdir()

    async def work(server: Any, installation: Installation) -> None:
        from palyra.wiring.exceptions import allow_call

        async with connected(server, "legacy") as client:
            words = [{"command": "bash", "args": ["-c", f"echo {name}"]} for name in "AB"]
            for word in words:
                no = await client.call_tool("palyra_process_run", word)
                call = no.structured_content["call_id"]
                assert no.structured_content["operator_hint"] == f"palyra policy allow {call}"
                assert "policy allow" not in no.structured_content["hint"]
                await allow_call(installation, call, "call", by="user:operator")
            for word in words:
                yes = await client.call_tool("palyra_process_run", word)
                assert yes.structured_content["success"], yes
            (home / "policies" / "local.cedar").write_text("permit (;")
            installation.policies.look_again()
            stale = await client.call_tool("palyra_process_run", words[0])
            assert stale.structured_content["success"]
            assert "need repair" in stale.structured_content["policy_stale"]

    serving(home, workspace, work)


# ── the daemon and its console ──


@pytest.fixture
def lived(tmp_path: Path) -> Any:
    with world(tmp_path) as made:
        yield made


def api(lived: World, method: str, path: str, *, status: int = 200, **options: Any) -> dict[str, Any]:
    token = lived.daemon.token(OPERATOR, operator=True)
    answer = lived.daemon.ask(method, f"/console/v1/policy{path}", token=token, **options)
    assert answer.status_code == status, answer.text
    value: dict[str, Any] = answer.json()
    return value


def test_over_http_an_operator_previews_makes_and_takes_back_exceptions(lived: World):
    calls = [lived.run_program("lscpu", f"--{word}").call_id for word in ("version", "help")]
    preview = api(lived, "POST", "/exceptions", json={"call_id": calls[0], "for": "call", "dry_run": True})
    assert (preview["dry_run"], preview["replay"]["flips"]) == (True, 1)
    assert not lived.run_program("lscpu", "--version").success
    made = [api(lived, "POST", "/exceptions", json={"call_id": call}) for call in calls]
    assert all(lived.run_program("lscpu", f"--{word}").success for word in ("version", "help"))
    assert not lived.run_program("lscpu", "-V").success
    assert api(lived, "DELETE", f"/exceptions/{made[0]['id']}")["id"] == made[0]["id"]
    assert not lived.run_program("lscpu", "--version").success
    assert lived.run_program("lscpu", "--help").success
    api(lived, "DELETE", f"/exceptions/{made[0]['id']}", status=404)
    api(lived, "DELETE", "/exceptions/local", status=404)
    api(lived, "POST", "/exceptions", status=409, json={"call_id": calls[1]})
    api(lived, "POST", "/exceptions", status=422, json={"call_id": calls[1], "for": "ever"})
    agent = lived.daemon.token("agent:demo")
    answer = lived.daemon.ask("POST", "/console/v1/policy/exceptions", token=agent, json={"call_id": calls[0]})
    assert answer.status_code == 403


def test_in_the_console_two_refused_calls_are_allowed_by_a_button_after_a_preview(lived: World):
    calls = [lived.run_program("lscpu", f"--{word}").call_id for word in ("version", "help")]
    for call in calls:
        for path in (f"/console/calls/{call}", f"/console/policy/explain?call_id={call}"):
            page = lived.page(path).text
            assert Markup(page).problems == []
            assert (
                f'action="/console/policy/allow" class="row"><input type="hidden" name="call_id" value="{call}"' in page
            )
            assert "local.cedar" not in page.split("Make an exception", 1)[1]
        preview = lived.page(f"/console/policy/allow?call_id={call}&for=call")
        assert Markup(preview.text).problems == []
        assert "Make this exception" in preview.text
        assert not lived.run_program("lscpu", "-V").success
        done = lived.send("/console/policy/allow", {"call_id": call, "for": "call"})
        assert (done.status_code, done.headers["location"]) == (303, "/console/policy?said=allowed")
    assert all(lived.run_program("lscpu", f"--{word}").success for word in ("version", "help"))
    shown = lived.page("/console/policy").text
    names = [one for one in lived.daemon.state.installation.policies.current().index if one.startswith("allow.")]
    assert all(f"/console/policy/exceptions/{name}/delete" in shown for name in names)
    lived.send(f"/console/policy/exceptions/{names[0]}/delete")
    assert [lived.run_program("lscpu", f"--{word}").success for word in ("version", "help")].count(False) == 1
    nothing = lived.page(f"/console/policy/allow?call_id={calls[0][:-1]}")
    assert (nothing.status_code, "not the id of a call" in nothing.text) == (409, True)


def test_a_daemon_that_cannot_read_its_policies_says_so_and_lets_exceptions_be_taken_back(lived: World):
    installation = lived.daemon.state.installation
    made = api(lived, "POST", "/exceptions", json={"call_id": lived.run_program("lscpu", "--version").call_id})
    local = installation.home.policies / "local.cedar"
    local.chmod(0o666)
    with pytest.raises(PolicyError):
        installation.policies.look_again()
    assert lived.run_program("ls").reason == "POLICY_ERROR"
    answer = api(lived, "GET", "/bundles", status=503)
    assert (answer["error"]["code"], str(local) in answer["error"]["message"]) == ("POLICY_ERROR", False)
    assert lived.page("/console/calls").status_code == 200
    assert "need repair" in lived.page("/console/calls").text
    assert api(lived, "DELETE", f"/exceptions/{made['id']}")["id"] == made["id"]
    local.chmod(0o600)
    installation.policies.look_again()
    assert lived.run_program("lscpu", "--version").reason == "EXECUTABLE_DENIED"


def test_every_page_of_the_console_says_that_policies_need_repair(lived: World):
    assert "need repair" not in lived.page("/console").text
    local = lived.daemon.state.installation.home.policies / "local.cedar"
    text = local.read_text()
    local.write_text(text + text)
    lived.daemon.state.installation.policies.look_again()
    for path in ("", "/calls", "/policy", "/doctor", "/journal"):
        page = lived.page(f"/console{path}")
        assert (page.status_code, Markup(page.text).problems) == (200, [])
        assert "The policy files need repair." in page.text
    assert "already used" in api(lived, "GET", "/bundles")["stale"]
    assert "need repair" in (lived.run_program("ls").policy_stale or "")
    local.write_text(text)
    lived.daemon.state.installation.policies.look_again()
    assert "need repair" not in lived.page("/console").text
