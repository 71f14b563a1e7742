// samples.redact: replaces what looks like personal data by its kind.
import { input, output } from "../sdk/palyra";
import { Json, Writer } from "../sdk/json";
import { KINDS, lengthOf, startsHere } from "./kinds";

export function run(): i32 {
  const given = Json.parse(input())!;
  const text = given.member("text")!.raw();
  const wanted = kindsWithout(given.member("keep"));
  const counts = new StaticArray<i32>(KINDS.length);
  const clean = new Writer();
  let at = 0;
  while (at < text.length) {
    const kind = kindAt(text, at, wanted);
    if (kind < 0) {
      clean.byte(text[at++]);
      continue;
    }
    counts[kind]++;
    const mark = Uint8Array.wrap(String.UTF8.encode("[" + KINDS[kind] + "]"));
    clean.copy(mark.dataStart, mark.dataStart + mark.length);
    at += lengthOf(kind, text, at);
  }
  return output(answer(clean.bytes(), counts));
}

function kindsWithout(keep: Json | null): StaticArray<bool> {
  const wanted = new StaticArray<bool>(KINDS.length);
  const kept: Json[] = keep == null ? [] : keep.values();
  for (let kind = 0; kind < KINDS.length; kind++) {
    wanted[kind] = true;
    for (let i = 0; i < kept.length; i++) if (kept[i].text() == KINDS[kind]) wanted[kind] = false;
  }
  return wanted;
}

function kindAt(text: Uint8Array, at: i32, wanted: StaticArray<bool>): i32 {
  if (!startsHere(text, at)) return -1;
  for (let kind = 0; kind < KINDS.length; kind++) {
    if (wanted[kind] && lengthOf(kind, text, at) > 0) return kind;
  }
  return -1;
}

function answer(clean: Uint8Array, counts: StaticArray<i32>): Uint8Array {
  const out = new Writer().open("{").key("text").quoted(clean).key("found").open("{");
  for (let kind = 0; kind < KINDS.length; kind++) if (counts[kind] > 0) out.key(KINDS[kind]).integer(counts[kind]);
  return out.close("}").close("}").bytes();
}
