// JSON for AssemblyScript: read where it lies, written piece by piece.
//
//   const given = Json.parse(input())!;
//   const name = given.member("name")!.text();
//   output(new Writer().open("{").key("hello").string(name).close("}").bytes());
//
// `parse` answers null for what is no JSON, or nested deeper than 64. It goes over the text once and notes where every
// value begins and ends, so that whatever follows costs what it looks at. Memory is read through addresses, and only
// places that `parse` found are turned into some.

const QUOTE: u32 = 0x22, BACKSLASH: u32 = 0x5c, COMMA: u32 = 0x2c, COLON: u32 = 0x3a;
const MAX_DEPTH: i32 = 64;

/** A note: where a value or key begins and ends, the number of the note behind it and what is in it, whether it is a key. */
@unmanaged
class Note {
  start: usize;
  end: usize;
  next: i32;
  key: i32;
}

/** A value: a note about a text. */
export class Json {
  constructor(private notes: usize, private at: i32) {}

  static parse(bytes: Uint8Array): Json | null {
    begin(bytes);
    skipSpace();
    if (!skipValue(0)) return null;
    skipSpace();
    return here == limit ? new Json(notes, 0) : null;
  }

  /** The first byte tells what it is: { [ " t f n - or a digit. */
  get first(): u8 { return load<u8>(this.start); }
  get isObject(): bool { return this.first == 0x7b; }
  get isArray(): bool { return this.first == 0x5b; }
  get isString(): bool { return this.first == QUOTE; }
  get isNumber(): bool { return this.first == 0x2d || isDigit(this.first); }
  get isTrue(): bool { return this.first == 0x74; }
  get isNull(): bool { return this.first == 0x6e; }

  /** The value of an object's member, or null. */
  member(name: string): Json | null {
    if (!this.isObject) return null;
    const wanted = utf8Of(name);
    const end = this.note.next;
    for (let key = this.at + 1; key < end; key = noteAt(this.notes, key + 1).next) {
      if (isNamed(this.notes, key, wanted)) return new Json(this.notes, key + 1);
    }
    return null;
  }

  /** The values of an object or of an array, in order; none of anything else. */
  values(): Json[] {
    const found: Json[] = [];
    if (!this.isObject && !this.isArray) return found;
    const end = this.note.next, step = this.isObject ? 1 : 0;
    for (let one = this.at + 1 + step; one < end; one = noteAt(this.notes, one).next + step) found.push(new Json(this.notes, one));
    return found;
  }

  /** The members of that name in this value and in everything below it, in the order they are written. */
  everywhere(name: string): Json[] {
    const wanted = utf8Of(name);
    const found: Json[] = [];
    for (let one = this.at, end = this.note.next; one < end; one++) {
      if (noteAt(this.notes, one).key && isNamed(this.notes, one, wanted)) found.push(new Json(this.notes, one + 1));
    }
    return found;
  }

  /** The name of this value, where it is a member's. */
  key(): string | null {
    return this.at > 0 && noteAt(this.notes, this.at - 1).key ? new Json(this.notes, this.at - 1).text() : null;
  }

  /** A string's content as bytes of UTF-8, escapes undone. */
  raw(): Uint8Array {
    if (!this.isString) return new Uint8Array(0);
    const out = new Writer();
    let from = this.start + 1;
    const end = this.end - 1;
    for (let at = from; at < end; ) {
      if (load<u8>(at) != BACKSLASH) { at++; continue; }
      out.copy(from, at);
      at = from = unescape(at + 1, end, out);
    }
    out.copy(from, end);
    return out.bytes();
  }

  text(): string {
    const utf8 = this.raw();
    return String.UTF8.decodeUnsafe(utf8.dataStart, utf8.length);
  }

  /** A number; NaN for anything else. */
  number(): f64 {
    if (!this.isNumber) return NaN;
    const negative = this.first == 0x2d;
    let mantissa: i64 = 0, digits = 0, places = 0, dotted = false;
    for (let at = this.start + (negative ? 1 : 0); at < this.end; at++) {
      const c = load<u8>(at);
      if (c == 0x2e) { dotted = true; continue; }
      if (!isDigit(c) || ++digits > 15) return F64.parseFloat(this.source());
      mantissa = mantissa * 10 + (c - 0x30);
      if (dotted) places++;
    }
    const value = <f64>mantissa / power(places); // both are exact, so the quotient is the nearest there is
    return negative ? -value : value;
  }

  /** The value as it is written. */
  source(): string { return String.UTF8.decodeUnsafe(this.start, this.end - this.start); }

  get start(): usize { return this.note.start; }
  get end(): usize { return this.note.end; }
  private get note(): Note { return noteAt(this.notes, this.at); }
}

/** Writes JSON piece by piece; commas come by themselves. */
export class Writer {
  private buffer: Uint8Array = new Uint8Array(256);
  private length: i32 = 0;
  private fresh: bool = true;

  open(bracket: string): Writer { this.comma(); this.fresh = true; this.byte(bracket.charCodeAt(0) as u8); return this; }
  close(bracket: string): Writer { this.fresh = false; this.byte(bracket.charCodeAt(0) as u8); return this; }
  key(name: string): Writer { this.string(name); this.byte(COLON as u8); this.fresh = true; return this; }
  string(text: string): Writer { return this.quoted(Uint8Array.wrap(String.UTF8.encode(text))); }
  integer(value: i64): Writer { return this.literal(value.toString()); }
  boolean(value: bool): Writer { return this.literal(value ? "true" : "false"); }
  literal(text: string): Writer { this.comma(); this.ascii(text); return this; }

  /** A value as it lies in another text. */
  value(json: Json): Writer { this.comma(); this.copy(json.start, json.end); return this; }

  /** UTF-8 as a string: quotes, backslashes and control characters are escaped. */
  quoted(utf8: Uint8Array): Writer {
    this.comma();
    this.byte(QUOTE as u8);
    const end = utf8.dataStart + utf8.length;
    let from = utf8.dataStart;
    for (let at = from; at < end; at++) {
      const c = load<u8>(at);
      if (c >= 0x20 && c != QUOTE && c != BACKSLASH) continue;
      this.copy(from, at);
      from = at + 1;
      this.byte(BACKSLASH as u8);
      if (c >= 0x20) this.byte(c);
      else { this.ascii("u00"); this.digit(c >> 4); this.digit(c & 15); }
    }
    this.copy(from, end);
    this.byte(QUOTE as u8);
    return this;
  }

  bytes(): Uint8Array { return this.buffer.subarray(0, this.length); }

  byte(value: u8): void {
    this.grow(1);
    store<u8>(this.buffer.dataStart + this.length++, value);
  }

  /** What lies in memory between two addresses. */
  copy(from: usize, to: usize): void {
    const count = (to - from) as i32;
    this.grow(count);
    memory.copy(this.buffer.dataStart + this.length, from, count);
    this.length += count;
  }

  character(code: u32): void {
    if (code < 0x80) return this.byte(code as u8);
    if (code < 0x800) this.byte((0xc0 | (code >> 6)) as u8);
    else {
      if (code < 0x10000) this.byte((0xe0 | (code >> 12)) as u8);
      else { this.byte((0xf0 | (code >> 18)) as u8); this.byte((0x80 | ((code >> 12) & 63)) as u8); }
      this.byte((0x80 | ((code >> 6) & 63)) as u8);
    }
    this.byte((0x80 | (code & 63)) as u8);
  }

  private grow(count: i32): void {
    if (this.length + count <= this.buffer.length) return;
    const larger = new Uint8Array(max(this.buffer.length * 2, this.length + count));
    memory.copy(larger.dataStart, this.buffer.dataStart, this.length);
    this.buffer = larger;
  }

  private comma(): void { if (!this.fresh) this.byte(COMMA as u8); this.fresh = false; }
  private ascii(text: string): void { for (let i = 0; i < text.length; i++) this.byte(text.charCodeAt(i) as u8); }
  private digit(value: u8): void { this.byte(value < 10 ? 0x30 + value : 0x57 + value); }
}

// ── parsing ──
// One text at a time, in variables of the module: they are its registers. The text is copied and ended by a zero byte,
// which no rule takes, so that no step has to ask where the end is. Each rule answers whether it held, and moves on.

let here: usize = 0, limit: usize = 0, notes: usize = 0;
let count: i32 = 0, room: i32 = 0;
let lastName: usize = 0, lastUtf8: Uint8Array = new Uint8Array(0);

function begin(bytes: Uint8Array): void {
  here = heap.alloc(bytes.length + 1);
  limit = here + bytes.length;
  memory.copy(here, bytes.dataStart, bytes.length);
  store<u8>(limit, 0);
  count = 0;
  room = 64;
  notes = heap.alloc(room * offsetof<Note>());
}

// @ts-ignore: decorator
@inline function skipSpace(): void {
  if (load<u8>(here) <= 0x20) skipBlanks();
}

function skipBlanks(): void {
  let c = load<u8>(here);
  while (c == 0x20 || c == 0x0a || c == 0x0d || c == 0x09) c = load<u8>(++here);
}

function skipValue(depth: i32): bool {
  if (depth > MAX_DEPTH) return false;
  const mine = count;
  add(0);
  const first = load<u8>(here);
  let held = false;
  if (first == QUOTE) held = skipString();
  else if (first == 0x7b) held = skipMembers(depth);
  else if (first == 0x5b) held = skipItems(depth);
  else if (first == 0x74) held = skipWord("true");
  else if (first == 0x66) held = skipWord("false");
  else if (first == 0x6e) held = skipWord("null");
  else held = skipNumber();
  close(mine);
  return held;
}

function skipMembers(depth: i32): bool {
  here++;
  skipSpace();
  if (take(0x7d)) return true;
  while (true) {
    if (load<u8>(here) != QUOTE) return false;
    const key = count;
    add(1);
    if (!skipString()) return false;
    close(key);
    skipSpace();
    if (!take(COLON)) return false;
    skipSpace();
    if (!skipValue(depth + 1)) return false;
    skipSpace();
    if (take(0x7d)) return true;
    if (!take(COMMA)) return false;
    skipSpace();
  }
}

function skipItems(depth: i32): bool {
  here++;
  skipSpace();
  if (take(0x5d)) return true;
  while (true) {
    if (!skipValue(depth + 1)) return false;
    skipSpace();
    if (take(0x5d)) return true;
    if (!take(COMMA)) return false;
    skipSpace();
  }
}

function skipString(): bool {
  let at = here + 1;
  let c = load<u8>(at);
  while (c != QUOTE) {
    if (c == BACKSLASH) { if ((at = skipEscape(at + 1)) == 0) return false; }
    else if (c < 0x20) return false;
    c = load<u8>(++at);
  }
  here = at + 1;
  return true;
}

/** Where the escape ends whose sign stands here; 0 when it is none. */
function skipEscape(at: usize): usize {
  const sign = load<u8>(at);
  if (sign != 0x75) {
    const known = sign == QUOTE || sign == BACKSLASH || sign == 0x2f || sign == 0x62 || sign == 0x66 || sign == 0x6e || sign == 0x72 || sign == 0x74;
    return known ? at : 0;
  }
  for (let i = 1; i <= 4; i++) {
    const digit = load<u8>(at + i);
    if (!isDigit(digit) && ((digit | 0x20) < 0x61 || (digit | 0x20) > 0x66)) return 0;
  }
  return at + 4;
}

function skipWord(letters: string): bool {
  for (let i = 0; i < letters.length; i++) if (!take(letters.charCodeAt(i) as u32)) return false;
  return true;
}

function skipNumber(): bool {
  take(0x2d);
  if (!take(0x30) && !skipDigits()) return false;
  if (take(0x2e) && !skipDigits()) return false;
  if (!take(0x65) && !take(0x45)) return true;
  if (!take(0x2b)) take(0x2d);
  return skipDigits();
}

function skipDigits(): bool {
  const start = here;
  while (isDigit(load<u8>(here))) here++;
  return here > start;
}

// @ts-ignore: decorator
@inline function take(wanted: u32): bool {
  if (load<u8>(here) != wanted) return false;
  here++;
  return true;
}

// @ts-ignore: decorator
@inline function isDigit(c: u8): bool { return c >= 0x30 && c <= 0x39; }

// @ts-ignore: decorator
@inline function noteAt(all: usize, place: i32): Note { return changetype<Note>(all + place * offsetof<Note>()); }

// @ts-ignore: decorator
@inline function add(key: i32): void {
  if (count == room) grow();
  const note = noteAt(notes, count++);
  note.start = here;
  note.key = key;
}

// @ts-ignore: decorator
@inline function close(place: i32): void {
  const note = noteAt(notes, place);
  note.end = here;
  note.next = count;
}

function grow(): void {
  const larger = heap.alloc(room * 2 * offsetof<Note>());
  memory.copy(larger, notes, count * offsetof<Note>());
  notes = larger;
  room *= 2;
}

function isNamed(all: usize, key: i32, wanted: Uint8Array): bool {
  const note = noteAt(all, key);
  const from = note.start + 1, length = (note.end - note.start - 2) as i32;
  if (length == wanted.length && memory.compare(from, wanted.dataStart, length) == 0) return true;
  for (let i = 0; i < length; i++) {
    if (load<u8>(from + i) == BACKSLASH) {
      const name = new Json(all, key).raw();
      return name.length == wanted.length && memory.compare(name.dataStart, wanted.dataStart, name.length) == 0;
    }
  }
  return false;
}

/** Encoded once for a name that is asked for again and again. */
function utf8Of(name: string): Uint8Array {
  if (changetype<usize>(name) != lastName) {
    lastName = changetype<usize>(name);
    lastUtf8 = Uint8Array.wrap(String.UTF8.encode(name));
  }
  return lastUtf8;
}

/** Writes what the escape that begins here stands for; where the text goes on. */
function unescape(at: usize, end: usize, out: Writer): usize {
  const sign = load<u8>(at);
  if (sign != 0x75) {
    out.byte(sign == 0x6e ? 10 : sign == 0x74 ? 9 : sign == 0x72 ? 13 : sign == 0x62 ? 8 : sign == 0x66 ? 12 : sign);
    return at + 1;
  }
  let code = hex(at + 1);
  at += 5;
  if (code >= 0xd800 && code < 0xdc00 && at + 6 <= end && load<u8>(at) == BACKSLASH && load<u8>(at + 1) == 0x75) {
    const low = hex(at + 2);
    if (low >= 0xdc00 && low < 0xe000) {
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
      at += 6;
    }
  }
  out.character(code);
  return at;
}

function hex(at: usize): u32 {
  let code: u32 = 0;
  for (let i = 0; i < 4; i++) {
    const digit = load<u8>(at + i);
    code = (code << 4) | (digit <= 0x39 ? digit - 0x30 : (digit | 0x20) - 0x57);
  }
  return code;
}

function power(places: i32): f64 {
  let value: f64 = 1;
  for (let i = 0; i < places; i++) value *= 10;
  return value;
}
