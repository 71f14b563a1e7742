// A path and what it selects. Every step maps the values so far to new ones, in the document's order.
import { Json } from "../sdk/json";

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
    if (this.take("..")) return this.named(everyDepth(values), this.name());
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
    const literal: Json | null = operator == "" ? null : this.literal();
    this.skipSpace();
    const kept: Json[] = [];
    for (let i = 0; i < values.length; i++) {
      let value: Json | null = values[i];
      for (let n = 0; n < names.length && value != null; n++) value = value.member(names[n]);
      if (value != null && (literal == null || holds(value, operator, literal))) kept.push(values[i]);
    }
    return this.closed(kept);
  }

  private operator(): string {
    const all = ["==", "!=", "<=", ">=", "<", ">"];
    for (let i = 0; i < all.length; i++) if (this.take(all[i])) return all[i];
    return "";
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
    const entries = values[i].entries();
    for (let n = 0; n < entries.length; n++) found.push(entries[n].value);
  }
  return found;
}

function indexed(values: Json[], index: i32): Json[] {
  const found: Json[] = [];
  for (let i = 0; i < values.length; i++) {
    if (!values[i].isArray) continue;
    const items = inside([values[i]]);
    const place = index < 0 ? items.length + index : index;
    if (place >= 0 && place < items.length) found.push(items[place]);
  }
  return found;
}

function everyDepth(values: Json[]): Json[] {
  const found: Json[] = [];
  for (let i = 0; i < values.length; i++) {
    found.push(values[i]);
    const deeper = everyDepth(inside([values[i]]));
    for (let n = 0; n < deeper.length; n++) found.push(deeper[n]);
  }
  return found;
}

/** Numbers compare by size, texts by their characters; two kinds are never equal, larger or smaller. */
function holds(value: Json, operator: string, literal: Json): bool {
  if (value.isNumber && literal.isNumber) return compare(value.number(), literal.number(), operator);
  if (value.isString && literal.isString) {
    const a = value.text(), b = literal.text();
    return compare(a < b ? -1 : a > b ? 1 : 0, 0, operator);
  }
  const same = value.source() == literal.source();
  return operator == "==" ? same : operator == "!=" ? !same : false;
}

function compare(a: f64, b: f64, operator: string): bool {
  if (operator == "==") return a == b;
  if (operator == "!=") return a != b;
  if (operator == "<") return a < b;
  if (operator == "<=") return a <= b;
  return operator == ">" ? a > b : a >= b;
}

function isDigit(c: string): bool { return c >= "0" && c <= "9"; }
function isWord(c: string): bool { return isDigit(c) || (c >= "a" && c <= "z") || (c >= "A" && c <= "Z") || c == "_" || c == "-" || c > "\x7f"; }
