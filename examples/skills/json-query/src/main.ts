// samples.json-query: picks values out of a JSON document by a path.
import { input, output } from "../sdk/palyra";
import { Json, Writer } from "../sdk/json";
import { Query } from "./query";

export function run(): i32 {
  const given = Json.parse(input())!;
  const wanted = given.member("limit");
  const limit = wanted == null ? 1000 : (wanted.number() as i32);
  const query = new Query(given.member("query")!.text());
  const found = query.select(given.member("document")!);
  const out = new Writer().open("{");
  if (query.error != "") {
    output(out.key("error").string(query.error).key("position").integer(query.at).close("}").bytes());
    return 1;
  }
  out.key("matches").open("[");
  for (let i = 0; i < found.length && i < limit; i++) out.value(found[i]);
  out.close("]").key("more").boolean(found.length > limit).close("}");
  return output(out.bytes());
}
