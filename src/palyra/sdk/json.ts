// JSON as it lies in memory: a value is a slice of bytes, nothing is copied or built up to be read.
//
//   const given = Json.parse(input())!;
//   const name = given.member("name")!.text();
//   output(new Writer().open("{").key("hello").string(name).close("}").bytes());
//
// `parse` answers null for what is no JSON; everything read from a value it gave is within its bounds.

const QUOTE: u8 = 0x22, BACKSLASH: u8 = 0x5c, COMMA: u8 = 0x2c, COLON: u8 = 0x3a;
const MAX_DEPTH: i32 = 64;

export class Json {
  constructor(public bytes: Uint8Array, public start: i32, public end: i32) {}

  static parse(bytes: Uint8Array): Json | null {
    const start = skipSpace(bytes, 0);
    const end = skipValue(bytes, start, 0);
    return end >= 0 && skipSpace(bytes, end) == bytes.length ? new Json(bytes, start, end) : null;
  }

  /** The first byte tells what it is: { [ " t f n - or a digit. */
  get first(): u8 { return this.bytes[this.start]; }
  get isObject(): bool { return this.first == 0x7b; }
  get isArray(): bool { return this.first == 0x5b; }
  get isString(): bool { return this.first == QUOTE; }
  get isNumber(): bool { return this.first == 0x2d || (this.first >= 0x30 && this.first <= 0x39); }
  get isTrue(): bool { return this.first == 0x74; }
  get isNull(): bool { return this.first == 0x6e; }

  /** The value of an object's member, or null. */
  member(name: string): Json | null {
    const wanted = Uint8Array.wrap(String.UTF8.encode(name));
    const entries = this.entries();
    for (let i = 0; i < entries.length; i++) {
      const key = entries[i].key;
      if (key != null && sameBytes(key.raw(), wanted)) return entries[i].value;
    }
    return null;
  }

  /** The members of an object or the items of an array, in order; none for anything else. */
  entries(): Entry[] {
    const found: Entry[] = [];
    if (!this.isObject && !this.isArray) return found;
    let at = skipSpace(this.bytes, this.start + 1);
    while (at < this.end - 1) {
      let key: Json | null = null;
      if (this.isObject) {
        key = new Json(this.bytes, at, skipString(this.bytes, at));
        at = skipSpace(this.bytes, skipSpace(this.bytes, key.end) + 1);
      }
      const value = new Json(this.bytes, at, skipValue(this.bytes, at, 0));
      found.push(new Entry(key, value));
      at = skipSpace(this.bytes, skipSpace(this.bytes, value.end) + 1);
    }
    return found;
  }

  /** A string's content as bytes of UTF-8, escapes undone. */
  raw(): Uint8Array {
    if (!this.isString) return new Uint8Array(0);
    const out = new Writer();
    for (let at = this.start + 1; at < this.end - 1; at++) {
      if (this.bytes[at] != BACKSLASH) out.byte(this.bytes[at]);
      else at = this.unescape(at + 1, out);
    }
    return out.bytes();
  }

  text(): string {
    const utf8 = this.raw();
    return String.UTF8.decodeUnsafe(utf8.dataStart, utf8.length);
  }

  number(): f64 { return this.isNumber ? F64.parseFloat(this.source()) : NaN; }

  /** The value as it is written. */
  source(): string { return String.UTF8.decodeUnsafe(this.bytes.dataStart + this.start, this.end - this.start); }

  private unescape(at: i32, out: Writer): i32 {
    const sign = this.bytes[at];
    if (sign != 0x75) {
      out.byte(sign == 0x6e ? 10 : sign == 0x74 ? 9 : sign == 0x72 ? 13 : sign == 0x62 ? 8 : sign == 0x66 ? 12 : sign);
      return at;
    }
    let code = this.hex(at + 1);
    at += 4;
    if (code >= 0xd800 && code < 0xdc00 && at + 6 < this.end && this.bytes[at + 1] == BACKSLASH && this.bytes[at + 2] == 0x75) {
      const low = this.hex(at + 3);
      if (low >= 0xdc00 && low < 0xe000) {
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        at += 6;
      }
    }
    out.character(code);
    return at;
  }

  private hex(at: i32): u32 {
    let code: u32 = 0;
    for (let i = 0; i < 4; i++) {
      const digit = this.bytes[at + i];
      code = (code << 4) | (digit <= 0x39 ? digit - 0x30 : (digit | 0x20) - 0x57);
    }
    return code;
  }
}

/** A member of an object, or an item of an array, which has no key. */
export class Entry {
  constructor(public key: Json | null, public value: Json) {}
}

/** Writes JSON piece by piece; commas come by themselves. */
export class Writer {
  private buffer: Uint8Array = new Uint8Array(256);
  private length: i32 = 0;
  private fresh: bool = true;

  open(bracket: string): Writer { this.comma(); this.fresh = true; this.byte(bracket.charCodeAt(0) as u8); return this; }
  close(bracket: string): Writer { this.fresh = false; this.byte(bracket.charCodeAt(0) as u8); return this; }
  key(name: string): Writer { this.string(name); this.byte(COLON); this.fresh = true; return this; }
  string(text: string): Writer { return this.quoted(Uint8Array.wrap(String.UTF8.encode(text))); }
  integer(value: i64): Writer { return this.literal(value.toString()); }
  boolean(value: bool): Writer { return this.literal(value ? "true" : "false"); }

  /** A value as it lies in another text. */
  value(json: Json): Writer { this.comma(); this.append(json.bytes, json.start, json.end); return this; }

  /** UTF-8 as a string: quotes, backslashes and control characters are escaped. */
  quoted(utf8: Uint8Array): Writer {
    this.comma();
    this.byte(QUOTE);
    for (let i = 0; i < utf8.length; i++) {
      const c = utf8[i];
      if (c == QUOTE || c == BACKSLASH) { this.byte(BACKSLASH); this.byte(c); }
      else if (c >= 0x20) this.byte(c);
      else { this.ascii("\\u00"); this.digit(c >> 4); this.digit(c & 15); }
    }
    this.byte(QUOTE);
    return this;
  }

  literal(text: string): Writer { this.comma(); this.ascii(text); return this; }

  bytes(): Uint8Array { return this.buffer.subarray(0, this.length); }

  byte(value: u8): void {
    if (this.length == this.buffer.length) {
      const larger = new Uint8Array(this.buffer.length * 2);
      memory.copy(larger.dataStart, this.buffer.dataStart, this.length);
      this.buffer = larger;
    }
    this.buffer[this.length++] = value;
  }

  append(bytes: Uint8Array, start: i32, end: i32): void {
    for (let at = start; at < end; at++) this.byte(bytes[at]);
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

  private comma(): void { if (!this.fresh) this.byte(COMMA); this.fresh = false; }
  private ascii(text: string): void { for (let i = 0; i < text.length; i++) this.byte(text.charCodeAt(i) as u8); }
  private digit(value: u8): void { this.byte(value < 10 ? 0x30 + value : 0x57 + value); }
}

export function sameBytes(a: Uint8Array, b: Uint8Array): bool {
  return a.length == b.length && memory.compare(a.dataStart, b.dataStart, a.length) == 0;
}

function skipSpace(bytes: Uint8Array, at: i32): i32 {
  while (at < bytes.length && (bytes[at] == 0x20 || (bytes[at] >= 0x09 && bytes[at] <= 0x0d && bytes[at] != 0x0b && bytes[at] != 0x0c))) at++;
  return at;
}

/** The end of the value that begins here; -1 when there is none. */
function skipValue(bytes: Uint8Array, at: i32, depth: i32): i32 {
  if (at < 0 || at >= bytes.length || depth > MAX_DEPTH) return -1;
  const first = bytes[at];
  if (first == QUOTE) return skipString(bytes, at);
  if (first == 0x7b || first == 0x5b) return skipInside(bytes, at, first == 0x7b, depth);
  if (first == 0x74) return skipWord(bytes, at, "true");
  if (first == 0x66) return skipWord(bytes, at, "false");
  if (first == 0x6e) return skipWord(bytes, at, "null");
  return skipNumber(bytes, at);
}

function skipInside(bytes: Uint8Array, at: i32, keyed: bool, depth: i32): i32 {
  const closing: u8 = keyed ? 0x7d : 0x5d;
  at = skipSpace(bytes, at + 1);
  if (at < bytes.length && bytes[at] == closing) return at + 1;
  while (true) {
    if (keyed) {
      if (at >= bytes.length || bytes[at] != QUOTE) return -1;
      at = skipString(bytes, at);
      if (at < 0) return -1;
      at = skipSpace(bytes, at);
      if (at >= bytes.length || bytes[at] != COLON) return -1;
      at = skipSpace(bytes, at + 1);
    }
    at = skipValue(bytes, at, depth + 1);
    if (at < 0) return -1;
    at = skipSpace(bytes, at);
    if (at >= bytes.length) return -1;
    if (bytes[at] == closing) return at + 1;
    if (bytes[at] != COMMA) return -1;
    at = skipSpace(bytes, at + 1);
  }
}

function skipString(bytes: Uint8Array, at: i32): i32 {
  for (at++; at < bytes.length; at++) {
    const c = bytes[at];
    if (c == QUOTE) return at + 1;
    if (c < 0x20) return -1;
    if (c == BACKSLASH && (at = skipEscape(bytes, at + 1)) < 0) return -1;
  }
  return -1;
}

function skipEscape(bytes: Uint8Array, at: i32): i32 {
  if (at >= bytes.length) return -1;
  const sign = bytes[at];
  if (sign != 0x75) {
    const known = sign == QUOTE || sign == BACKSLASH || sign == 0x2f || sign == 0x62 || sign == 0x66 || sign == 0x6e || sign == 0x72 || sign == 0x74;
    return known ? at : -1;
  }
  for (let i = 1; i <= 4; i++) {
    if (at + i >= bytes.length) return -1;
    const digit = bytes[at + i];
    if (!(digit >= 0x30 && digit <= 0x39) && !((digit | 0x20) >= 0x61 && (digit | 0x20) <= 0x66)) return -1;
  }
  return at + 4;
}

function skipWord(bytes: Uint8Array, at: i32, word: string): i32 {
  for (let i = 0; i < word.length; i++, at++) {
    if (at >= bytes.length || bytes[at] != (word.charCodeAt(i) as u8)) return -1;
  }
  return at;
}

function skipNumber(bytes: Uint8Array, at: i32): i32 {
  if (bytes[at] == 0x2d) at++;
  if (at < bytes.length && bytes[at] == 0x30) at++;
  else if ((at = skipDigits(bytes, at)) < 0) return -1;
  if (at < bytes.length && bytes[at] == 0x2e && (at = skipDigits(bytes, at + 1)) < 0) return -1;
  if (at < bytes.length && (bytes[at] | 0x20) == 0x65) {
    at++;
    if (at < bytes.length && (bytes[at] == 0x2b || bytes[at] == 0x2d)) at++;
    if ((at = skipDigits(bytes, at)) < 0) return -1;
  }
  return at;
}

function skipDigits(bytes: Uint8Array, at: i32): i32 {
  const start = at;
  while (at < bytes.length && bytes[at] >= 0x30 && bytes[at] <= 0x39) at++;
  return at > start ? at : -1;
}
