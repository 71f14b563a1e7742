"""Components as text: a shared memory with an allocator, the imports a case needs, and a core `run`."""

from __future__ import annotations

from wasmtime import wat2wasm

_MEMORY = """
  (core module $mem (memory (export "memory") 1) (global $at (mut i32) (i32.const 1024))
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (local $new i32)
      (local.set $new (i32.and (i32.add (global.get $at) (i32.const 7)) (i32.const -8)))
      (global.set $at (i32.add (local.get $new) (local.get 3)))
      (local.get $new)))
  (core instance $mem (instantiate $mem))
  (alias core export $mem "memory" (core memory $memory))
  (alias core export $mem "realloc" (core func $realloc))
"""
_LIFT = """
  (func (export "run") (param "input" string) (result (result string (error string)))
    (canon lift (core func $guest "run") (memory $memory) (realloc $realloc)))
"""
ANSWER_INPUT = """(i32.store8 (i32.const 16) (i32.const 0)) (i32.store (i32.const 20) (local.get 0))
    (i32.store (i32.const 24) (local.get 1)) (i32.const 16)"""


def component(body: str, *, imports: str = "", lowered: str = "", core_imports: str = "", given: str = "") -> bytes:
    """`run` gets pointer and length of the input and returns where its result lies."""
    return bytes(wat2wasm(text(body, imports=imports, lowered=lowered, core_imports=core_imports, given=given)))


def text(body: str, *, imports: str = "", lowered: str = "", core_imports: str = "", given: str = "") -> str:
    return f"""(component {imports} {_MEMORY} {lowered}
            (core module $m (import "mem" "memory" (memory 1)) {core_imports}
              (func (export "run") (param i32 i32) (result i32) {body}))
            (core instance $guest (instantiate $m (with "mem" (instance $mem)) {given}))
            {_LIFT})"""


ECHO_TEXT = text(ANSWER_INPUT)
ECHO = component(ANSWER_INPUT)
FAILING = component(ANSWER_INPUT.replace("(i32.const 16) (i32.const 0)", "(i32.const 16) (i32.const 1)"))

LOGGING = component(
    "(loop $again (call $emit (i32.const 2) (local.get 0) (local.get 1)) (br $again)) (i32.const 16)",
    imports="""(import "palyra:plugins/log@0.1.0" (instance $log
        (export "emit" (func (param "level" u8) (param "message" string)))))""",
    lowered='(core func $emit (canon lower (func $log "emit") (memory $memory)))',
    core_imports='(import "log" "emit" (func $emit (param i32 i32 i32)))',
    given='(with "log" (instance (export "emit" (func $emit))))',
)

STORING = component(
    """(call $roots (i32.const 32))
       (call $put (i32.load (i32.load (i32.const 32))) (local.get 0) (local.get 1) (local.get 0) (local.get 1)
                  (i32.const 64))
       (i32.store8 (i32.const 16) (i32.load8_u (i32.const 64)))
       (if (i32.load8_u (i32.const 64))
         (then (i32.store (i32.const 20) (i32.load (i32.const 68)))
               (i32.store (i32.const 24) (i32.load (i32.const 72))))
         (else (i32.store (i32.const 20) (local.get 0)) (i32.store (i32.const 24) (local.get 1))))
       (i32.const 16)""",
    imports="""(import "palyra:plugins/storage@0.1.0" (instance $st (export "root" (type $root (sub resource)))
        (export "roots" (func (result (list (own $root)))))
        (export "[method]root.put" (func (param "self" (borrow $root)) (param "key" string) (param "value" string)
                                         (result (result (error string)))))))""",
    lowered="""(core func $roots (canon lower (func $st "roots") (memory $memory) (realloc $realloc)))
        (core func $put (canon lower (func $st "[method]root.put") (memory $memory) (realloc $realloc)))""",
    core_imports="""(import "st" "roots" (func $roots (param i32)))
        (import "st" "put" (func $put (param i32 i32 i32 i32 i32 i32)))""",
    given='(with "st" (instance (export "roots" (func $roots)) (export "put" (func $put))))',
)
"""Puts its input under itself as the key into the first root, and answers with the input or the error."""
