"""What a shell inside a trial sandbox is asked to report, and whether the report shows isolation. Pure.

Only the shell's own commands and /proc are used, so nothing need be installed. Each line is a word and its
value; a wall whose line is missing or wrong is a problem, so a report cut short never passes.

Not here: starting the trial (probe).
"""

from __future__ import annotations

from collections.abc import Sequence

HELD = "held"
"""The line after which the shell waits for a line on stdin, then reports pid_max."""
REPORT = """
read -r pid rest < /proc/self/stat; echo "pid $pid"
while read -r name rest; do case $name in *:*) echo "interface ${name%%:*}";; esac; done < /proc/net/dev
if ( : > /palyra-probe ) 2>/dev/null; then rm -f /palyra-probe; echo "root writable"; else echo "root sealed"; fi
if ( : > "$1/made" ) 2>/dev/null; then echo "workspace writable"; else echo "workspace sealed"; fi
workspace=$1; shift
for path; do if [ -e "$path" ]; then echo "sees $path"; fi; done
while read -r key value rest; do
  case $key in NoNewPrivs:|Seccomp:|CapEff:) echo "${key%:} $value";; esac
done < /proc/self/status
environ=; IFS= read -r environ < /proc/1/environ; environ=${environ#"PWD=$workspace"}; echo "environ ${#environ}"
if ( : > /proc/sys/kernel/hostname ) 2>/dev/null; then echo "sysctl writable"; else echo "sysctl sealed"; fi
echo held
read -r go
echo "pid_max $(cat /proc/sys/kernel/pid_max)"
"""

# Of a container: what its cgroup says, in either version.
LIMITS_REPORT = """
for file in /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes; do
  if read -r value 2>/dev/null < $file; then echo "memory $value"; fi
done 2>/dev/null
for file in /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids/pids.max; do
  if read -r value 2>/dev/null < $file; then echo "pids $value"; fi
done 2>/dev/null
"""

_LARGEST_INNER_PID = 9


def parse_report(text: str) -> list[tuple[str, str]]:
    return [(word, value) for word, _, value in (line.partition(" ") for line in text.splitlines())]


def problem_in(report: Sequence[tuple[str, str]], *, own_init: bool = False) -> str:
    """The first wall that is not there, or an empty string. `own_init`: the first process inside is not a launcher of
    ours, so its environment is the sandbox's own."""
    said = dict(report)
    interfaces = {value for word, value in report if word == "interface"}
    walls = (
        (said.get("pid", "").isdigit() and int(said["pid"]) <= _LARGEST_INNER_PID, "it has no PID namespace"),
        (interfaces == {"lo"}, f"it sees the network interfaces {', '.join(sorted(interfaces))}"),
        (said.get("root") == "sealed", "its root is writable"),
        (said.get("workspace") == "writable", "its workspace is not writable"),
        ("sees" not in said, f"it sees {said.get('sees', '')}"),
        (said.get("NoNewPrivs") == "1", "it could gain privileges"),
        (said.get("Seccomp") == "2", "it has no system call filter"),
        (said.get("CapEff", "x").strip("0") == "", "it has capabilities"),
        (own_init or said.get("environ") == "0", "it can read the launcher's environment"),
        (said.get("sysctl") == "sealed", "it can write kernel settings"),
        (HELD in said, "its report was cut short"),
    )
    return next((problem for holds, problem in walls if not holds), "")


def pid_max_in(report: Sequence[tuple[str, str]]) -> str:
    return dict(report).get("pid_max", "")
