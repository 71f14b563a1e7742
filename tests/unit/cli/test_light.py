"""A command imports no more of a library than it needs, and nothing is missing for whoever asks; it leaves at once."""

from __future__ import annotations

import subprocess
import sys

TREES = """
import sys
from palyra.cli.light import keep_light
keep_light()
keep_light()
import palyra.policy.cedar
print("light" if not hasattr(sys.modules["cedarpy.pst"], "__file__") else "heavy")
import cedarpy
print(type(cedarpy.policies_to_pst('permit(principal, action, resource);')).__name__)
print(cedarpy.pst.PolicySet.__name__, sys.modules["cedarpy.pst"].__file__.endswith("pst.py"))
"""

TLS = """
import sys
from palyra.cli.light import keep_light
keep_light()
import asyncio, asyncio.base_events
print("_ssl" in sys.modules)
import ssl
early = ssl
context = ssl.create_default_context()
print("_ssl" in sys.modules, isinstance(context, asyncio.base_events.ssl.SSLContext))
import ssl
print(ssl is early, hasattr(ssl, "__file__"), early.SSLContext is ssl.SSLContext)

def anonymous(side):
    made = ssl.SSLContext(side)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    made.maximum_version = ssl.TLSVersion.TLSv1_2
    made.set_ciphers("AECDH-AES128-SHA:@SECLEVEL=0")
    return made

async def answer(reader, writer):
    writer.write(await reader.readline())
    writer.close()

async def talk():
    listening = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=anonymous(ssl.PROTOCOL_TLS_SERVER))
    context = anonymous(ssl.PROTOCOL_TLS_CLIENT)
    reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname(), ssl=context)
    writer.write(b"hello\\n")
    print((await reader.read()).decode().strip(), writer.get_extra_info("cipher")[0])
    writer.close()
    listening.close()

asyncio.run(talk())
from asyncio.sslproto import SSLProtocol
print(SSLProtocol is asyncio.sslproto.SSLProtocol is asyncio.base_events.sslproto.SSLProtocol)
"""

ASKED = """
import sys
from palyra.cli.light import KNOWN, keep_light
keep_light()
import click, logging
import inspect, platform, textwrap, tomllib, traceback
print(any(name in sys.modules for name in ("ast", "tokenize", "tomllib._parser")))

async def later(): ...
def now(): ...
def wrapping(): ...
wrapping.__wrapped__ = now
class Bound:
    def now(self): ...
    async def later(self): ...
asked = {
    "cleandoc": ["", " one line ", "  two\\n    lines\\n  ", "\\ta\\tb", "\\u00a0x"],
    "iscoroutinefunction": [later, now, Bound().now, Bound().later, len, Bound, wrapping],
    "isfunction": [later, now, Bound().now, len],
    "unwrap": [now, wrapping],
    "system": [],
}
early = {name: [getattr(inspect, name)(one) for one in given] for name, given in asked.items() if given}
system = platform.system()
real = inspect.getmodule  # whoever asks for more gets the whole module
print(isinstance(inspect.cleandoc, type(now)), inspect.__dict__["unwrap"] is sys.modules["inspect"].unwrap)
print(early == {name: [getattr(inspect, name)(one) for one in given] for name, given in asked.items() if given})
print(platform.machine() != "", system == platform.system())
print(textwrap.dedent("  a"), tomllib.loads("a = 1"), traceback.format_exception_only(ValueError("b"))[0].strip())
print(sorted(name for known in KNOWN.values() for name in known) == sorted(asked))
try:
    tomllib.loads("=")
except tomllib.TOMLDecodeError:
    print("wrong")
"""

LEAVE = """
import atexit, sys, threading, time
from palyra.cli.light import leave
atexit.register(print, "last words")
class Left:
    def __del__(self):
        print("taken apart")
left = Left()
if "busy" in sys.argv:
    threading.Thread(target=lambda: (time.sleep(0.3), print("done"))).start()
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
leave(3)
"""

THREADS = """
import sys, threading
from palyra.cli import light
sys.setswitchinterval(1e-6)

def ask(stand_in, ready, got):
    ready.wait()
    try:
        got.append(stand_in.dedent)
    except KeyError as error:
        got.append(error)

for _ in range(300):
    stand_in = sys.modules["textwrap"] = light._stand_in("textwrap", {})
    got, ready = [], threading.Barrier(6)
    threads = [threading.Thread(target=ask, args=(stand_in, ready, got)) for _ in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    if {*got} != {sys.modules["textwrap"].dedent}:
        print(got)
"""

GARBAGE = """
import gc
from palyra.cli.light import SHORT_LIFE_OBJECTS, YOUNG_OBJECTS, keep_light, stay
usual = gc.get_threshold()
keep_light()
print(gc.get_threshold()[0] == SHORT_LIFE_OBJECTS, gc.isenabled())
stay()
young = gc.get_threshold()[0]
print(usual[0] < young == YOUNG_OBJECTS < SHORT_LIFE_OBJECTS, gc.isenabled(), gc.get_freeze_count() > 1000)
"""


def _told(program: str, *words: str, code: int = 0) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, "")
    return done.stdout.splitlines()


def test_syntax_trees_come_when_somebody_asks_for_them():
    assert _told(TREES) == ["light", "PolicySet", "PolicySet True"]


def test_tls_comes_when_somebody_asks_for_it_and_is_whole():
    assert _told(TLS) == ["False", "True True", "False True True", "hello AECDH-AES128-SHA", "True"]


def test_modules_that_others_stand_in_for_come_whole_and_answer_as_they_did_before():
    assert _told(ASKED) == ["False", "True True", "True", "True True", "a {'a': 1} ValueError: b", "True", "wrong"]


def test_a_process_leaves_without_taking_itself_apart_but_not_without_last_words():
    assert _told(LEAVE, code=3) == ["last words"]


def test_a_thread_that_still_works_is_waited_for():
    told = _told(LEAVE, "busy", code=3)
    assert told[0] == "done"
    assert told[1] == "last words"


def test_the_collector_waits_in_a_short_command_and_works_in_a_long_one():
    assert _told(GARBAGE) == ["True True", "True True True"]


def test_threads_that_ask_for_a_module_at_the_same_time_get_the_same_one():
    assert _told(THREADS) == []
