// What a core module in AssemblyScript sees of Palyra: docs/spec/wasm.md, section "Core modules".
//
//   import { input, output } from "../sdk/palyra";
//   export function run(): i32 { return output(input()); }
//
// Text is UTF-8 on the host's side. Build with `--runtime stub`: a call starts with fresh memory and needs no collector.
// Below zero is an error; handles are places in what was granted, and nothing else can be named.

// @ts-ignore: decorator
@external("palyra:plugins/host@0.1.0", "input-len") declare function host_input_len(): i32;
// @ts-ignore: decorator
@external("palyra:plugins/host@0.1.0", "input-read") declare function host_input_read(into: usize, capacity: i32): i32;
// @ts-ignore: decorator
@external("palyra:plugins/host@0.1.0", "output") declare function host_output(json: usize, count: i32): i32;
// @ts-ignore: decorator
@external("palyra:plugins/host@0.1.0", "take") declare function host_take(into: usize, capacity: i32): i32;
// @ts-ignore: decorator
@external("palyra:plugins/host@0.1.0", "http-handle") declare function host_http_handle(place: i32): i32;
// @ts-ignore: decorator
@external("palyra:plugins/host@0.1.0", "http-fetch") declare function host_http_fetch(handle: i32, request: usize, count: i32): i32;
// @ts-ignore: decorator
@external("palyra:plugins/host@0.1.0", "secret-handle") declare function host_secret_handle(place: i32): i32;
// @ts-ignore: decorator
@external("palyra:plugins/host@0.1.0", "secret-get") declare function host_secret_get(handle: i32): i32;
// @ts-ignore: decorator
@external("palyra:plugins/host@0.1.0", "storage-handle") declare function host_storage_handle(place: i32): i32;
// @ts-ignore: decorator
@external("palyra:plugins/host@0.1.0", "storage-get") declare function host_storage_get(handle: i32, key: usize, count: i32): i32;
// @ts-ignore: decorator
@external("palyra:plugins/host@0.1.0", "storage-put") declare function host_storage_put(handle: i32, key: usize, key_count: i32, value: usize, count: i32): i32;
// @ts-ignore: decorator
@external("palyra:plugins/host@0.1.0", "storage-list") declare function host_storage_list(handle: i32, prefix: usize, count: i32): i32;
// @ts-ignore: decorator
@external("palyra:plugins/host@0.1.0", "storage-delete") declare function host_storage_delete(handle: i32, key: usize, count: i32): i32;
// @ts-ignore: decorator
@external("palyra:plugins/host@0.1.0", "channel-handle") declare function host_channel_handle(place: i32): i32;
// @ts-ignore: decorator
@external("palyra:plugins/host@0.1.0", "channel-send") declare function host_channel_send(handle: i32, data: usize, count: i32): i32;
// @ts-ignore: decorator
@external("palyra:plugins/host@0.1.0", "log") declare function host_log(level: i32, text: usize, count: i32): i32;

export const NOT_GRANTED: i32 = -1;
export const BAD_ARGUMENT: i32 = -2;
export const ABSENT: i32 = -3;
export const FAILED: i32 = -4;
export const TOO_LARGE: i32 = -5;

/** What a call of the host came to: a negative `error`, or the bytes it gave. */
export class Answer {
  constructor(public error: i32, public bytes: Uint8Array) {}
}

/** The call's input: JSON text. */
export function input(): Uint8Array {
  const bytes = new Uint8Array(host_input_len());
  host_input_read(bytes.dataStart, bytes.length);
  return bytes;
}

/** The call's result: JSON text. The last one counts. */
export function output(json: Uint8Array): i32 {
  return host_output(json.dataStart, json.length);
}

/** A request to the n-th granted host, as the JSON object of docs/spec/wasm.md. */
export function fetch(place: i32, request: Uint8Array): Answer {
  return taken(host_http_fetch(host_http_handle(place), request.dataStart, request.length));
}

/** The raw value of the n-th granted secret, where reading it was granted too; most are added to requests instead. */
export function secret(place: i32): Answer {
  return taken(host_secret_get(host_secret_handle(place)));
}

/** A value under the n-th granted prefix; ABSENT when there is none. */
export function load_value(place: i32, key: Uint8Array): Answer {
  return taken(host_storage_get(host_storage_handle(place), key.dataStart, key.length));
}

export function store_value(place: i32, key: Uint8Array, value: Uint8Array): i32 {
  return host_storage_put(host_storage_handle(place), key.dataStart, key.length, value.dataStart, value.length);
}

export function delete_value(place: i32, key: Uint8Array): i32 {
  return host_storage_delete(host_storage_handle(place), key.dataStart, key.length);
}

/** Keys by lines. */
export function list_keys(place: i32, prefix: Uint8Array): Answer {
  return taken(host_storage_list(host_storage_handle(place), prefix.dataStart, prefix.length));
}

export function send(place: i32, data: Uint8Array): i32 {
  return host_channel_send(host_channel_handle(place), data.dataStart, data.length);
}

/** Levels: 0 trace, 1 debug, 2 info, 3 warning, 4 error. */
export function log(level: i32, text: string): void {
  const bytes = utf8(text);
  host_log(level, bytes.dataStart, bytes.length);
}

export function utf8(text: string): Uint8Array {
  return Uint8Array.wrap(String.UTF8.encode(text));
}

function taken(length: i32): Answer {
  if (length < 0) return new Answer(length, new Uint8Array(0));
  const bytes = new Uint8Array(length);
  host_take(bytes.dataStart, length);
  return new Answer(0, bytes);
}
