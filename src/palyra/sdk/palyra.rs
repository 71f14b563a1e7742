//! What a core module in Rust sees of Palyra: docs/spec/wasm.md, section "Core modules".
//!
//! Below zero is an error; handles are places in what was granted, and nothing else can be named.
#![allow(dead_code)]

pub const NOT_GRANTED: i32 = -1;
pub const BAD_ARGUMENT: i32 = -2;
pub const ABSENT: i32 = -3;
pub const FAILED: i32 = -4;
pub const TOO_LARGE: i32 = -5;

mod host {
    #[link(wasm_import_module = "palyra:plugins/host@0.1.0")]
    extern "C" {
        #[link_name = "input-len"]
        pub fn input_len() -> i32;
        #[link_name = "input-read"]
        pub fn input_read(into: *mut u8, capacity: i32) -> i32;
        pub fn output(json: *const u8, count: i32) -> i32;
        pub fn take(into: *mut u8, capacity: i32) -> i32;
        #[link_name = "http-handle"]
        pub fn http_handle(place: i32) -> i32;
        #[link_name = "http-fetch"]
        pub fn http_fetch(handle: i32, request: *const u8, count: i32) -> i32;
        #[link_name = "secret-handle"]
        pub fn secret_handle(place: i32) -> i32;
        #[link_name = "secret-get"]
        pub fn secret_get(handle: i32) -> i32;
        #[link_name = "storage-handle"]
        pub fn storage_handle(place: i32) -> i32;
        #[link_name = "storage-get"]
        pub fn storage_get(handle: i32, key: *const u8, count: i32) -> i32;
        #[link_name = "storage-put"]
        pub fn storage_put(handle: i32, key: *const u8, key_count: i32, value: *const u8, count: i32) -> i32;
        #[link_name = "storage-list"]
        pub fn storage_list(handle: i32, prefix: *const u8, count: i32) -> i32;
        #[link_name = "storage-delete"]
        pub fn storage_delete(handle: i32, key: *const u8, count: i32) -> i32;
        #[link_name = "channel-handle"]
        pub fn channel_handle(place: i32) -> i32;
        #[link_name = "channel-send"]
        pub fn channel_send(handle: i32, data: *const u8, count: i32) -> i32;
        pub fn log(level: i32, text: *const u8, count: i32) -> i32;
    }
}

/// The call's input: JSON text.
pub fn input() -> Vec<u8> {
    let count = unsafe { host::input_len() };
    read(count, |into, capacity| unsafe { host::input_read(into, capacity) })
}

/// The call's result: JSON text. The last one counts.
pub fn output(json: &[u8]) -> i32 {
    unsafe { host::output(json.as_ptr(), json.len() as i32) }
}

/// A request to the n-th granted host, as the JSON object of docs/spec/wasm.md.
pub fn fetch(place: i32, request: &[u8]) -> Result<Vec<u8>, i32> {
    taken(unsafe { host::http_fetch(host::http_handle(place), request.as_ptr(), request.len() as i32) })
}

/// The raw value of the n-th granted secret, where reading it was granted too; most are added to requests instead.
pub fn secret(place: i32) -> Result<Vec<u8>, i32> {
    taken(unsafe { host::secret_get(host::secret_handle(place)) })
}

/// A value under the n-th granted prefix; `Err(ABSENT)` when there is none.
pub fn load(place: i32, key: &str) -> Result<Vec<u8>, i32> {
    taken(unsafe { host::storage_get(host::storage_handle(place), key.as_ptr(), key.len() as i32) })
}

pub fn store(place: i32, key: &str, value: &[u8]) -> i32 {
    let (at, count) = (value.as_ptr(), value.len() as i32);
    unsafe { host::storage_put(host::storage_handle(place), key.as_ptr(), key.len() as i32, at, count) }
}

pub fn delete(place: i32, key: &str) -> i32 {
    unsafe { host::storage_delete(host::storage_handle(place), key.as_ptr(), key.len() as i32) }
}

/// Keys by lines.
pub fn list(place: i32, prefix: &str) -> Result<Vec<u8>, i32> {
    taken(unsafe { host::storage_list(host::storage_handle(place), prefix.as_ptr(), prefix.len() as i32) })
}

pub fn send(place: i32, data: &[u8]) -> i32 {
    unsafe { host::channel_send(host::channel_handle(place), data.as_ptr(), data.len() as i32) }
}

/// Levels: 0 trace, 1 debug, 2 info, 3 warning, 4 error.
pub fn log(level: i32, text: &str) {
    unsafe { host::log(level, text.as_ptr(), text.len() as i32) };
}

fn taken(length: i32) -> Result<Vec<u8>, i32> {
    if length < 0 {
        return Err(length);
    }
    Ok(read(length, |into, capacity| unsafe { host::take(into, capacity) }))
}

fn read(count: i32, copy: impl FnOnce(*mut u8, i32) -> i32) -> Vec<u8> {
    let mut bytes = vec![0u8; count.max(0) as usize];
    let copied = copy(bytes.as_mut_ptr(), bytes.len() as i32);
    bytes.truncate(copied.max(0) as usize);
    bytes
}
