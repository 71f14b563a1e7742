"""What the operating system is asked for, under the same names on every system.

Only Linux has native backends so far, so only it is here; on any other system no backend claims anything, the
planner refuses every native job, and nothing of this is called.
"""

from palyra.launch._os._linux import (
    Unsupported,
    become_subreaper,
    children,
    cpu_us,
    exit_status,
    expect,
    kernel_at_least,
    memory_file,
    parent,
    pipe,
    process_ids,
    raised,
    reap,
    reap_orphans,
    send_signal,
    spawn,
    spawn_confined,
    spawn_in_namespace,
    stray_descriptors,
)

__all__ = [
    "Unsupported",
    "become_subreaper",
    "children",
    "cpu_us",
    "exit_status",
    "expect",
    "kernel_at_least",
    "memory_file",
    "parent",
    "pipe",
    "process_ids",
    "raised",
    "reap",
    "reap_orphans",
    "send_signal",
    "spawn",
    "spawn_confined",
    "spawn_in_namespace",
    "stray_descriptors",
]
