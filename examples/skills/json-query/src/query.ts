// A path and what it selects. Every step maps the values so far to new ones, in the document's order.
import { Json } from "../sdk/json";

const OPERATORS: string[] = ["==", "!=", "<=", ">=", "<", ">"];
const SAME = 0, OTHER = 1, AT_MOST = 2, AT_LEAST = 3, LESS = 4;

export class Query {
  error: string = "";
  at: i32 = 0;

  constructor(private text: string) {}

  /** What the path selects, or nothing and `error`. */
  select(document: Json): Json[] {
    let values: Json[] = [document];
    this.take("$");
    while (this.error == "" && this.at < this.text.length) values = this.step(values);
    return this.error == "" ? values : [];
  }

  private step(values: Json[]): Json[] {
    if (this.take("..")) return everywhere(values, this.name());
    if (this.take(".*")) return inside(values);
    if (this.take(".")) return this.named(values, this.name());
    if (this.take("[")) return this.bracket(values);
    if (this.at == 0) return this.named(values, this.name());
    return this.fail("a step begins with . or [");
  }

  private bracket(values: Json[]): Json[] {
    if (this.take("*")) return this.closed(inside(values));
    if (this.take("?")) return this.filter(inside(values));
    const sign = this.peek();
    if (sign == "'" || sign == '"') return this.closed(this.named(values, this.quoted()));
    const start = this.at;
    this.take("-");
    while (isDigit(this.peek())) this.at++;
    if (!isDigit(this.text.charAt(this.at - 1))) return this.fail("[ is followed by *, ?, a number or a quoted name");
    return this.closed(indexed(values, I32.parseInt(this.text.substring(start, this.at))));
  }

  private filter(values: Json[]): Json[] {
    this.skipSpace();
    const names = [this.name()];
    while (this.take(".")) names.push(this.name());
    this.skipSpace();
    const operator = this.operator();
    this.skipSpace();
    const literal: Json | null = operator < 0 ? null : this.literal();
    const test: Test | null = literal == null ? null : new Test(operator, literal);
    this.skipSpace();
    const kept: Json[] = [];
    for (let i = 0; i < values.length; i++) {
      let value: Json | null = values[i];
      for (let n = 0; n < names.length && value != null; n++) value = value.member(names[n]);
      if (value != null && (test == null || test.holds(value))) kept.push(values[i]);
    }
    return this.closed(kept);
  }

  private operator(): i32 {
    for (let i = 0; i < OPERATORS.length; i++) if (this.take(OPERATORS[i])) return i;
    return -1;
  }

  private literal(): Json | null {
    const sign = this.peek();
    const start = this.at;
    if (sign == "'" || sign == '"') {
      const text = this.quoted();
      return Json.parse(Uint8Array.wrap(String.UTF8.encode('"' + text.replaceAll("\\", "\\\\").replaceAll('"', '\\"') + '"')));
    }
    while (this.at < this.text.length && this.peek() != "]" && this.peek() != " ") this.at++;
    const found = Json.parse(Uint8Array.wrap(String.UTF8.encode(this.text.substring(start, this.at))));
    if (found == null || found.isObject || found.isArray) this.fail("a filter compares with a number, text, true, false or null");
    return found;
  }

  private named(values: Json[], name: string): Json[] {
    const found: Json[] = [];
    for (let i = 0; i < values.length; i++) {
      const value = values[i].member(name);
      if (value != null) found.push(value);
    }
    return found;
  }

  private name(): string {
    const start = this.at;
    while (isWord(this.peek())) this.at++;
    if (this.at == start) this.fail("a name is missing here; put unusual ones in ['']");
    return this.text.substring(start, this.at);
  }

  private quoted(): string {
    const quote = this.peek();
    const end = this.text.indexOf(quote, this.at + 1);
    if (end < 0) { this.fail("the quote is not closed"); return ""; }
    const name = this.text.substring(this.at + 1, end);
    this.at = end + 1;
    return name;
  }

  private closed(values: Json[]): Json[] { return this.error != "" || this.take("]") ? values : this.fail("a ] is missing"); }
  private peek(): string { return this.text.charAt(this.at); }

  private take(sign: string): bool {
    if (this.text.substr(this.at, sign.length) != sign) return false;
    this.at += sign.length;
    return true;
  }

  private skipSpace(): void { while (this.peek() == " ") this.at++; }

  private fail(why: string): Json[] {
    if (this.error == "") this.error = why;
    return [];
  }
}

function inside(values: Json[]): Json[] {
  const found: Json[] = [];
  for (let i = 0; i < values.length; i++) {
    const below = values[i].values();
    for (let n = 0; n < below.length; n++) found.push(below[n]);
  }
  return found;
}

function indexed(values: Json[], index: i32): Json[] {
  const found: Json[] = [];
  for (let i = 0; i < values.length; i++) {
    if (!values[i].isArray) continue;
    const items = values[i].values();
    const place = index < 0 ? items.length + index : index;
    if (place >= 0 && place < items.length) found.push(items[place]);
  }
  return found;
}

function everywhere(values: Json[], name: string): Json[] {
  const found: Json[] = [];
  for (let i = 0; i < values.length; i++) {
    const below = values[i].everywhere(name);
    for (let n = 0; n < below.length; n++) found.push(below[n]);
  }
  return found;
}

/** Numbers compare by size, texts by their characters; two kinds are never equal, larger or smaller. */
class Test {
  private size: f64;
  private text: string;

  constructor(private operator: i32, private literal: Json) {
    this.size = literal.number();
    this.text = literal.isString ? literal.text() : literal.source();
  }

  holds(value: Json): bool {
    if (value.isNumber && this.literal.isNumber) return this.stands(value.number(), this.size);
    if (value.isString && this.literal.isString) {
      const text = value.text();
      return this.stands(text < this.text ? -1 : text > this.text ? 1 : 0, 0);
    }
    const same = value.first == this.literal.first && value.source() == this.text;
    return this.operator == SAME ? same : this.operator == OTHER ? !same : false;
  }

  private stands(a: f64, b: f64): bool {
    if (this.operator == SAME) return a == b;
    if (this.operator == OTHER) return a != b;
    if (this.operator == AT_MOST) return a <= b;
    if (this.operator == AT_LEAST) return a >= b;
    return this.operator == LESS ? a < b : a > b;
  }
}

function isDigit(c: string): bool { return c >= "0" && c <= "9"; }
function isWord(c: string): bool { return isDigit(c) || (c >= "a" && c <= "z") || (c >= "A" && c <= "Z") || c == "_" || c == "-" || c > "\x7f"; }
