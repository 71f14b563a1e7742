"""Runs the other programs of this folder as forks of itself, so that none of them pays for a fresh interpreter.

Started on the host by path as `python3 -I -S zygote.py SOCKET_FD PARENT_PID`, once for an engine's process, and ends
with it: by the kernel's own signal, or when the socket is closed. One message a job: any byte, and descriptors. The
first of them is a file with the request, JSON: {"job": NAME, "words": [...]}; the second is where the job says that it
is done; a number among the words stands for the descriptor at that place among the rest. The fork then is what
`python3 -I -S NAME.py WORDS…` would be, with one thread: only such a process may enter another's namespaces.

Nothing foreign is read here: the socket's other end is the engine's alone. A job ends well when "k" comes and then the
end of the file; anything else is a failure. Not here: what the jobs do (closing and its neighbours).
"""

import ctypes
import gc
import importlib.util
import json
import os
import signal
import socket
import sys
import types
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1
MAX_DESCRIPTORS = 64
DONE = b"k"


def die_with(parent: int) -> bool:
    """False when it is gone already."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    return os.getppid() == parent


def load(name: str, known: dict[str, types.ModuleType]) -> types.ModuleType:
    """A program of this folder, ready to be forked; loaded here, so that every later fork has it."""
    if name not in known:
        if not name.isidentifier():
            raise ValueError("a job is named by a plain word")
        place = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
        spec = importlib.util.spec_from_file_location(name, place)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        known[name] = module
        gc.freeze()
    return known[name]


def read_request(fd: int) -> tuple[str, list[str | int]]:
    with open(fd, "rb", closefd=False) as file:
        request = json.load(file)
    return str(request["job"]), list(request["words"])


def work(job: types.ModuleType, words: Sequence[str | int], fds: Sequence[int], done: int) -> None:
    """In the fork. Nothing is printed or imported any more: the file system may be the sandbox's by then."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        given = (str(fds[word]) if isinstance(word, int) else word for word in words)
        sys.argv = [str(job.__file__), *given]
        job.main()
        os.write(done, DONE)
        code = 0
    finally:
        os._exit(code)


def serve_one(control: socket.socket, known: dict[str, types.ModuleType]) -> bool:
    """False at the end of the socket."""
    message, fds, _, _ = socket.recv_fds(control, 1, MAX_DESCRIPTORS)
    if not message:
        return False
    try:
        request, done, *rest = fds
        name, words = read_request(request)
        job = load(name, known)
        if os.fork() == 0:
            control.close()
            work(job, words, rest, done)
    except Exception:  # noqa: BLE001, S110  # the closed descriptor says it: a job that never said "k" has failed
        pass
    finally:
        for fd in reversed(fds):  # where it says that it is done last: when that ends, nothing of the job is held here
            os.close(fd)
    return True


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    if not die_with(int(sys.argv[2])):
        return
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the jobs; how they went is said by themselves
    known: dict[str, types.ModuleType] = {}
    while serve_one(control, known):
        pass


if __name__ == "__main__":
    main()
