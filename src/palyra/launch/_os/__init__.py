"""What the operating system is asked for, under the same names on every system that has them.

Linux runs every plan that its backends make. The pieces for Windows are in `_windows` and `_jobobject`, which import
anywhere and are reached by their own names: nothing of the list below exists there.
"""

import sys

if sys.platform != "win32":
    from palyra.launch._os._linux import (
        Unsupported,
        become_subreaper,
        end_entering,
        exit_status,
        expect,
        forget,
        let_go_first,
        line,
        memory_file,
        opened_again,
        pipe,
        raised,
        reap,
        reap_by_descriptor,
        reap_orphans,
        run_in_namespace,
        run_program,
        send_signal,
        spawn,
        spawn_confined,
        spawn_in_namespace,
    )
    from palyra.launch._os._proc import (
        all_pids,
        children,
        cpu_us,
        is_alive,
        is_childless,
        kernel_at_least,
        last_pid,
        own_identity,
        parent,
        process_ids,
        state,
        stray_descriptors,
        tasks_of,
    )

__all__ = [
    "Unsupported",
    "all_pids",
    "become_subreaper",
    "children",
    "cpu_us",
    "end_entering",
    "exit_status",
    "expect",
    "forget",
    "is_alive",
    "is_childless",
    "kernel_at_least",
    "last_pid",
    "let_go_first",
    "line",
    "memory_file",
    "opened_again",
    "own_identity",
    "parent",
    "pipe",
    "process_ids",
    "raised",
    "reap",
    "reap_by_descriptor",
    "reap_orphans",
    "run_in_namespace",
    "run_program",
    "send_signal",
    "spawn",
    "spawn_confined",
    "spawn_in_namespace",
    "state",
    "stray_descriptors",
    "tasks_of",
]
