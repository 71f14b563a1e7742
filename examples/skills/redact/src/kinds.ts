// How long the e-mail address, card number, IBAN or IPv4 address is that begins here; 0 when none does.
export const KINDS: string[] = ["email", "iban", "card", "ipv4"];

export function lengthOf(kind: i32, text: Uint8Array, at: i32): i32 {
  if (kind == 0) return email(text, at);
  if (kind == 1) return iban(text, at);
  return kind == 2 ? card(text, at) : ipv4(text, at);
}

/** Only where a word begins: the middle of one was judged with its beginning. */
export function startsHere(text: Uint8Array, at: i32): bool {
  return isAlnum(text[at]) && (at == 0 || !isLocal(text[at - 1]));
}

function email(text: Uint8Array, at: i32): i32 {
  let end = at;
  while (end < text.length && end - at <= 64 && isLocal(text[end])) end++;
  if (end == at || end - at > 64 || end >= text.length || text[end] != 0x40 || text[end - 1] == 0x2e) return 0;
  const domain = ++end;
  while (end < text.length && end - domain < 254 && (isAlnum(text[end]) || text[end] == 0x2d || text[end] == 0x2e)) end++;
  while (end > domain && !isAlnum(text[end - 1])) end--; // the full stop of a sentence is not the address's
  let dot = end - 1;
  while (dot > domain && text[dot] != 0x2e) dot--;
  return dot > domain && text[domain] != 0x2e && end - dot > 2 ? end - at : 0;
}

/** Thirteen to nineteen digits, single spaces or dashes between them, whose Luhn sum is right. */
function card(text: Uint8Array, at: i32): i32 {
  const digits = new StaticArray<u8>(19);
  let count = 0, end = at;
  for (let here = at; here < text.length; here++) {
    const c = text[here];
    if (isDigit(c)) {
      if (count == 19) return 0;
      digits[count++] = c - 0x30;
      end = here + 1;
    } else if ((c != 0x20 && c != 0x2d) || here != end) break;
  }
  if (count < 13 || (end < text.length && isAlnum(text[end])) || !luhn(digits, count)) return 0;
  return end - at;
}

function luhn(digits: StaticArray<u8>, count: i32): bool {
  let sum = 0, any = 0;
  for (let i = 0; i < count; i++) {
    let value: i32 = digits[count - 1 - i];
    any |= value;
    if (i % 2 == 1) value = value > 4 ? value * 2 - 9 : value * 2;
    sum += value;
  }
  return any != 0 && sum % 10 == 0;
}

/** Two capital letters, two digits, eleven to thirty letters and digits in groups; 1 modulo 97, country last. */
function iban(text: Uint8Array, at: i32): i32 {
  if (at + 15 > text.length || !isCapital(text[at]) || !isCapital(text[at + 1])) return 0;
  if (!isDigit(text[at + 2]) || !isDigit(text[at + 3])) return 0;
  let rest = 0, count = 0, end = at;
  for (let here = at + 4; here < text.length && count < 31; here++) {
    const grouped = count % 4 == 0 && here + 1 < text.length && isAlnum(text[here + 1]);
    if (text[here] == 0x20 && text[here - 1] != 0x20 && grouped) continue;
    if (!isDigit(text[here]) && !isCapital(text[here])) break;
    rest = fold(rest, text[here]);
    count++;
    end = here + 1;
  }
  for (let i = 0; i < 4; i++) rest = fold(rest, text[at + i]);
  const closed = end >= text.length || !isAlnum(text[end]);
  return count >= 11 && count <= 30 && closed && rest == 1 ? end - at : 0;
}

function fold(rest: i32, c: u8): i32 {
  return isDigit(c) ? (rest * 10 + (c - 0x30)) % 97 : (rest * 100 + (c - 0x37)) % 97;
}

function ipv4(text: Uint8Array, at: i32): i32 {
  let end = at;
  for (let part = 0; part < 4; part++) {
    if (part > 0 && (end >= text.length || text[end++] != 0x2e)) return 0;
    let value = 0, digits = 0;
    while (end < text.length && isDigit(text[end]) && digits < 4) { value = value * 10 + (text[end++] - 0x30); digits++; }
    if (digits == 0 || digits > 3 || value > 255) return 0;
  }
  const more = end < text.length && (isAlnum(text[end]) || (text[end] == 0x2e && end + 1 < text.length && isDigit(text[end + 1])));
  return more ? 0 : end - at;
}

function isDigit(c: u8): bool { return c >= 0x30 && c <= 0x39; }
function isCapital(c: u8): bool { return c >= 0x41 && c <= 0x5a; }
function isAlnum(c: u8): bool { return isDigit(c) || isCapital(c) || (c >= 0x61 && c <= 0x7a); }
function isLocal(c: u8): bool { return isAlnum(c) || c == 0x2e || c == 0x5f || c == 0x2d || c == 0x2b || c == 0x25; }
