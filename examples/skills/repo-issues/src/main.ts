// samples.repo-issues: lists a repository's issues, with a cache that the forge itself keeps honest (ETag).
//
// The token is no business of this code: it is bound to the host in the vault and added to the request outside.
import { fetch, input, load_value, log, output, store_value, utf8 } from "../sdk/palyra";
import { Json, Writer } from "../sdk/json";

const HOST = 0, CACHE = 0; // the first granted host, the first granted prefix

class Asked {
  constructor(public owner: string, public repo: string, public state: string, public limit: string) {}
  get path(): string { return `/repos/${this.owner}/${this.repo}/issues?state=${this.state}&per_page=${this.limit}`; }
  get key(): Uint8Array { return utf8(`${this.owner}/${this.repo}/${this.state}-${this.limit}`); }
}

export function run(): i32 {
  const asked = read(Json.parse(input())!);
  const kept = load_value(CACHE, asked.key);
  const cache: Json | null = kept.error == 0 ? Json.parse(kept.bytes) : null;
  const answer = fetch(HOST, request(asked, cache));
  const response: Json | null = answer.error == 0 ? Json.parse(answer.bytes) : null;
  if (response == null) {
    log(3, `the forge cannot be reached: ${answer.error}`);
    return cache == null ? fail("the forge cannot be reached", 0) : give(cache.member("issues")!, "stale cache");
  }
  const status = response.member("status")!.number() as i32;
  if (status == 304 && cache != null) return give(cache.member("issues")!, "cache");
  const body = Json.parse(response.member("body")!.raw());
  if (status != 200 || body == null || !body.isArray) return fail("the forge answers something else than issues", status);
  const issues = pick(body);
  remember(asked, response, issues);
  return give(issues, "api");
}

function read(given: Json): Asked {
  const state = given.member("state"), limit = given.member("limit");
  return new Asked(
    given.member("owner")!.text(),
    given.member("repo")!.text(),
    state == null ? "open" : state.text(),
    limit == null ? "20" : limit.source(),
  );
}

function request(asked: Asked, cache: Json | null): Uint8Array {
  const out = new Writer().open("{").key("method").string("GET").key("path").string(asked.path).key("headers").open("[");
  header(out, "accept", "application/vnd.github+json");
  if (cache != null) header(out, "if-none-match", cache.member("etag")!.text());
  return out.close("]").close("}").bytes();
}

function header(out: Writer, name: string, value: string): void {
  out.open("[").string(name).string(value).close("]");
}

/** Of each issue what an agent needs; pull requests, which this API lists too, are left out. */
function pick(body: Json): Json {
  const out = new Writer().open("[");
  const all = body.values();
  for (let i = 0; i < all.length; i++) {
    const issue = all[i];
    if (issue.member("pull_request") != null) continue;
    const user = issue.member("user");
    const author: Json | null = user == null ? null : user.member("login");
    out.open("{").key("number").value(issue.member("number")!).key("title").value(issue.member("title")!);
    out.key("state").value(issue.member("state")!).key("author");
    if (author == null) out.literal("null");
    else out.value(author);
    labels(out.key("labels"), issue.member("labels"));
    out.close("}");
  }
  return Json.parse(out.close("]").bytes())!;
}

function labels(out: Writer, given: Json | null): void {
  out.open("[");
  if (given != null) {
    const all = given.values();
    for (let i = 0; i < all.length; i++) {
      const name = all[i].member("name");
      if (name != null) out.value(name);
    }
  }
  out.close("]");
}

/** Only with a tag the forge can be asked by: without one nobody could tell whether it is old. */
function remember(asked: Asked, response: Json, issues: Json): void {
  const headers = response.member("headers")!.values();
  for (let i = 0; i < headers.length; i++) {
    const pair = headers[i].values();
    if (pair[0].text() != "etag") continue;
    const out = new Writer().open("{").key("etag").value(pair[1]).key("issues").value(issues).close("}");
    if (store_value(CACHE, asked.key, out.bytes()) < 0) log(3, "the answer could not be kept");
  }
}

function give(issues: Json, source: string): i32 {
  return output(new Writer().open("{").key("issues").value(issues).key("source").string(source).close("}").bytes());
}

function fail(why: string, status: i32): i32 {
  const out = new Writer().open("{").key("error").string(why);
  if (status != 0) out.key("status").integer(status);
  output(out.close("}").bytes());
  return 1;
}
