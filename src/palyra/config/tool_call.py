"""`[tool_call]`: which tools there are, how often they may be called, and what programs and modules get.

Every limit has a cap that no file can lift (`RANGES`, model/limits). Not here: what a program may reach on the network
beyond its hosts (egress), the budget of a run or a day (budget), parsing (schema).
"""

from __future__ import annotations

from dataclasses import field

from palyra.late import late
from palyra.model.call import TierChoice
from palyra.model.environment import HARMLESS
from palyra.model.limits import Limits
from palyra.model.net import EgressMode
from palyra.model.tool import Capability
from palyra.values import dataclass

EGRESS_ALIASES = {"allow_all": "none", "block_all": "strict"}

PINNED_IMAGE = late(r"(?:[a-z0-9][a-z0-9._/:-]*@)?sha256:[0-9a-f]{64}")
"""A name is only for reading; the digest says which image. Nothing that a container client would take for an option."""

COMMON_PROGRAMS = (
    *("b2sum", "base32", "base64", "basename", "bc", "bzcat", "bzip2", "cat", "chmod", "cksum", "cmp", "column"),
    *("comm", "cp", "csplit", "cut", "date", "dd", "df", "diff", "dirname", "du", "echo", "egrep", "expand", "expr"),
    *("factor", "false", "fgrep", "file", "find", "fmt", "fold", "free", "git", "grep", "gunzip", "gzip", "head"),
    *("hexdump", "hostname", "iconv", "id", "join", "jq", "ln", "ls", "md5sum", "mkdir", "mktemp", "mv", "nl"),
    *("nproc", "numfmt", "od", "paste", "patch", "printenv", "printf", "pwd", "readlink", "realpath", "rev", "rg"),
    *("rm", "rmdir", "sed", "seq", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "shuf", "sleep"),
    *("sort", "split", "stat", "sum", "tac", "tail", "tar", "tee", "test", "touch", "tr", "tree", "true", "truncate"),
    *("tsort", "uname", "unexpand", "uniq", "unxz", "unzip", "uptime", "wc", "which", "whoami", "xxd", "xz", "xzcat"),
    *("yes", "zcat", "zip", "zstd"),
)
WORDS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("tool_call", "process_runner", "tier"): tuple(t.value for t in TierChoice),
    ("tool_call", "process_runner", "fallback_tier"): ("", "b"),
    ("tool_call", "process_runner", "egress_enforcement_mode"): (*(m.value for m in EgressMode), *EGRESS_ALIASES),
    ("tool_call", "process_runner", "backend"): ("auto", "bubblewrap", "seatbelt", "podman", "docker"),
}
RANGES: dict[str, tuple[int, int]] = {
    "max_calls_per_run": (0, 10**9),
    "max_attempts_per_run": (0, 10**9),
    "max_calls_per_minute": (0, 1000),
    "max_calls_per_day": (0, 10**9),
    "execution_timeout_ms": (1, 24 * 3600 * 1000),
    "cpu_time_limit_ms": (1, 24 * 3600 * 1000),
    "memory_limit_bytes": (8 << 20, 1 << 44),
    "max_processes": (1, 1 << 20),
    "max_output_bytes": (0, 1 << 32),
    "background_lifetime_ms": (1, 1_800_000),
    "max_background_per_run": (0, 64),
    "warm_sandboxes": (0, 64),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRunnerConfig:
    """`[tool_call.process_runner]`, `SandboxProcessRunnerPolicy` in the glossary."""

    enabled: bool = True
    tier: str = "auto"
    fallback_tier: str = ""
    allow_root_tier_b: bool = False
    """Where Palyra runs as root: whether a program of tier B keeps uid 0 in a workspace that is root's. Otherwise it
    runs as nobody there, and writes only what everybody may."""
    workspace_root: str = ""
    allowed_executables: tuple[str, ...] = COMMON_PROGRAMS
    allow_interpreters: bool = False
    path: tuple[str, ...] = ("/usr/local/bin", "/usr/bin", "/bin")
    read_roots: tuple[str, ...] = ()
    settable_env: tuple[str, ...] = tuple(HARMLESS)
    """Environment variables that a call may set; those of the default hold plain words only. Some can never be set: see
    [process.md](../spec/process.md)."""
    egress_enforcement_mode: str = "strict"
    allowed_egress_hosts: tuple[str, ...] = ()
    cpu_time_limit_ms: int = 3_600_000
    """CPU time of each process, rounded up to whole seconds. An hour is four busy cores for 15 minutes."""
    memory_limit_bytes: int = 4 << 30
    """Private memory of each process (`RLIMIT_DATA`), and of the whole call with `cgroup_limits`."""
    max_processes: int = 2048
    """Processes and threads of one call, where the host can bound them. A browser has some 400."""
    max_output_bytes: int = 1 << 20
    background_lifetime_ms: int = 600_000
    """How long a background process may run, independently of the time limit of calls; then it is ended."""
    max_background_per_run: int = 16
    """How many background processes of one run may run at once. 0 refuses them all."""
    warm_sandboxes: int = 2
    """Sandboxes kept ready for each kind of call in a process that makes many; 0 starts every one when it is needed."""
    cgroup_limits: bool = True
    """Limit memory and processes of a whole call with a cgroup, where the host lets Palyra create one; elsewhere no
    limit of the whole call is claimed. It costs some milliseconds per call that finds no sandbox ready."""
    list_changes: bool = False
    """Report for every process which files of the workspace it changed. Costs two scans of the whole workspace."""
    backend: str = "auto"
    """What tier C runs in: `auto` takes the first that works. One that is named serves every call of tier C; what it
    cannot carry is refused."""
    container_image: str = ""
    """The image of tier C's containers, pinned: NAME@sha256:DIGEST or sha256:ID. Empty: none."""

    @property
    def has_own_list(self) -> bool:
        """Whether the operator wrote `allowed_executables`, were it word for word the default."""
        return self.allowed_executables is not COMMON_PROGRAMS

    @property
    def tier_choice(self) -> TierChoice:
        return TierChoice(self.tier)

    @property
    def blocks_all(self) -> bool:
        return self.egress_enforcement_mode == "block_all"

    @property
    def egress_mode(self) -> EgressMode:
        return EgressMode(EGRESS_ALIASES.get(self.egress_enforcement_mode, self.egress_enforcement_mode))


@dataclass(frozen=True, slots=True, kw_only=True)
class WasmRuntimeConfig:
    """`[tool_call.wasm_runtime]`: `WasmPluginRunnerPolicy`."""

    enabled: bool = True
    allow_inline_modules: bool = False
    """Whether palyra.plugin.run accepts a module in its input; policy has to permit it as well."""
    fuel_budget: int = 10_000_000
    """Fuel for one call of a core module: about that many instructions."""
    component_fuel_budget: int = 1_000_000_000
    max_memory_bytes: int = 64 << 20
    """Memory of one guest in all."""
    max_table_elements: int = 100_000
    max_instances: int = 16
    """Guests that run at once; more wait."""
    max_instances_per_skill: int = 8
    """The same for one skill; inline modules share one such bound. More wait, so that other skills get their turn."""
    in_process_publishers: tuple[str, ...] = ()
    """Publishers whose skills run in Palyra's own process, isolated by wasmtime alone. Faster; only for skills of your
    own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallConfig:
    """`[tool_call]`."""

    allowed_tools: tuple[str, ...] = ("palyra.*",)
    allowed_capabilities: tuple[str, ...] = tuple(c.value for c in Capability)
    max_calls_per_run: int = 0
    """Calls that a run may make. 0 is 200, and no end for an MCP session, which has the two limits below instead."""
    max_attempts_per_run: int = 0
    """Refused and malformed calls, counted separately, so that a model cannot loop for ever. 0 is 1000, and
    10 000 for an MCP session without `max_calls_per_run`."""
    max_calls_per_minute: int = 600
    """Calls that an MCP session without `max_calls_per_run` may make in any minute; policy may refuse as many. 0 is no
    limit, here and below."""
    max_calls_per_day: int = 20_000
    """Calls of such a session in any 24 hours, those that policy refused included."""
    execution_timeout_ms: int = 900_000
    """How long a call may run: 15 minutes fit a test suite. `timeout_ms` of a call can only ask for less."""
    process_runner: ProcessRunnerConfig = field(default_factory=ProcessRunnerConfig)
    wasm_runtime: WasmRuntimeConfig = field(default_factory=WasmRuntimeConfig)

    @property
    def has_open_sessions(self) -> bool:
        """Whether an MCP session has no number of calls after which it ends."""
        return self.max_calls_per_run == 0

    @property
    def limits(self) -> Limits:
        runner = self.process_runner
        return Limits(
            wall_ms=self.execution_timeout_ms,
            cpu_ms=runner.cpu_time_limit_ms,
            memory_bytes=runner.memory_limit_bytes,
            processes=runner.max_processes,
            output_bytes=runner.max_output_bytes,
        )
