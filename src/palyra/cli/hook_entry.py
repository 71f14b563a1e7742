"""What an agent's host starts before each tool: `python -I -S hook_entry.py AGENT HOME`. Its own program, not `palyra`.

It hands the event on as it came and prints what it is told: no JSON is read here, and nothing is imported that the
interpreter does not have at hand, because it runs before every tool of the agent. Touches: stdin, the daemon's Unix
socket; without a daemon it starts `palyra hook answer`, which opens the home itself. Rules: **whatever goes wrong is a
no** (exit 2, the one code all hosts take for it), also time running out and a daemon that is not the home's owner's, or
is a program in a sandbox.
"""

from __future__ import annotations

import _socket
import os
import sys

TIMEOUT_S = 60
MAX_EVENT_BYTES = 4 << 20
MAX_ANSWER_BYTES = 1 << 20
BLOCK = 2
SO_PEERPIDFD, ENOPROTOOPT = 77, 92


def main(words: list[str]) -> int:
    if len(words) != 2:
        return fail("the hook is installed wrongly: run palyra hook install again")
    agent, home = words
    event = read_all(0, MAX_EVENT_BYTES)
    if len(event) > MAX_EVENT_BYTES:
        return fail("TOO_LARGE: the event is larger than a hook takes")
    try:
        line = connect(home)
    except OSError:
        line = None
    except ValueError as error:
        return fail(str(error))
    if line is None:
        return ask_palyra(agent, home, event)
    try:
        return ask_daemon(line, agent, event)
    except (OSError, ValueError) as error:
        return fail("the daemon did not answer: " + str(error))


def connect(home: str) -> _socket.socket | None:
    """The daemon of this home, or None where there is none."""
    # Too long a path for a socket may be a link to one that is not.
    path = os.path.realpath(os.path.join(home, "run", "palyrad.sock"))
    line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    line.settimeout(TIMEOUT_S)
    try:
        line.connect(path)
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
        line.close()
        return None
    if hasattr(_socket, "SO_PEERCRED"):
        cred = line.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
        uid = int.from_bytes(cred[4:8], sys.byteorder)
        if uid not in (os.getuid(), os.stat(home).st_uid):
            raise ValueError("the socket in the home is somebody else's")
        pid = int.from_bytes(cred[:4], sys.byteorder)
        if pid and not 0 <= depth_of_peer(line, pid) == depth_of("/proc/self/status"):
            raise ValueError("a program in a sandbox listens at the daemon's socket: move that out of the workspace")
    return line


def depth_of_peer(line: _socket.socket, pid: int) -> int:
    """As in wiring/peers: a program in a sandbox has its owner's uid, and would say yes to everything."""
    try:
        pidfd = int.from_bytes(line.getsockopt(_socket.SOL_SOCKET, SO_PEERPIDFD, 4), sys.byteorder)
    except OSError as error:
        return depth_of(f"/proc/{pid}/status") if error.errno == ENOPROTOOPT else -1
    return depth_of(f"/proc/self/fdinfo/{pidfd}")


def depth_of(place: str) -> int:
    """How many PID namespaces deep; -1 for a process that is gone."""
    try:
        with open(place, "rb") as file:
            words = next((line.split() for line in file if line.startswith(b"NSpid:")), [b"NSpid:"])
    except OSError:
        return -1
    return -1 if words[1:2] == [b"-1"] else len(words) - 1


def ask_daemon(line: _socket.socket, agent: str, event: bytes) -> int:
    project = os.environ.get("CLAUDE_PROJECT_DIR", "")
    if not project.isprintable() or not project.isascii():
        project = ""
    head = (
        f"POST /v1/hooks/{agent} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Palyra-Project: {project}\r\nContent-Length: {len(event)}\r\nConnection: close\r\n\r\n"
    )
    line.sendall(head.encode("ascii") + event)
    answer = b""
    while True:
        chunk = line.recv(65536)
        if not chunk:
            break
        answer += chunk
        if len(answer) > MAX_ANSWER_BYTES:
            raise ValueError("its answer is too long")
    above, empty, body = answer.partition(b"\r\n\r\n")
    lines = above.split(b"\r\n")
    if not empty or not lines[0].startswith(b"HTTP/1.1 200 "):
        raise ValueError(lines[0].decode("ascii", "replace")[:100] or "nothing came")
    fields: dict[bytes, bytes] = {}
    for text in lines[1:]:
        name, _, value = text.partition(b":")
        fields[name.strip().lower()] = value.strip()
    code = int(fields[b"palyra-exit"]) if fields.get(b"palyra-exit", b"").isdigit() else BLOCK
    if fields.get(b"content-length") != str(len(body)).encode():
        raise ValueError("its answer was cut off")
    os.write(2 if code else 1, body)
    return code


def ask_palyra(agent: str, home: str, event: bytes) -> int:
    """No daemon: the command line opens the home. Slower, and the same answer."""
    import subprocess

    words = [sys.executable, "-I", "-m", "palyra", "--home", home, "hook", "answer", agent]
    try:
        done = subprocess.run(words, input=event, capture_output=True, timeout=TIMEOUT_S, check=False)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        return fail(str(error))
    os.write(1, done.stdout) if done.returncode == 0 else os.write(2, done.stderr or b"palyra: it failed\n")
    return 0 if done.returncode == 0 else BLOCK


def read_all(fd: int, most: int) -> bytes:
    data = b""
    while len(data) <= most:
        chunk = os.read(fd, 1 << 16)
        if not chunk:
            break
        data += chunk
    return data


def fail(why: str) -> int:
    os.write(2, ("palyra: " + why + "\n").encode("utf-8", "replace"))
    return BLOCK


if __name__ == "__main__":
    try:
        code = main(sys.argv[1:])
    except BaseException as error:  # noqa: BLE001  # the last line: an exception would exit 1, and 1 lets the tool run
        code = fail(type(error).__name__)
    os._exit(code)
