/* What a core module sees of Palyra: docs/spec/wasm.md, section "Core modules". No library and no allocator is needed.
 *
 *   #include "palyra.h"
 *   PALYRA_RUN {
 *       static char buffer[65536];
 *       int32_t count = palyra_input_read(buffer, sizeof buffer);
 *       return palyra_output(buffer, count);
 *   }
 *
 * Below zero is an error; handles are places in what was granted, and nothing else can be named.
 */
#ifndef PALYRA_H
#define PALYRA_H

#include <stdint.h>

#define PALYRA_IMPORT(name) __attribute__((import_module("palyra:plugins/host@0.1.0"), import_name(name)))
#define PALYRA_RUN __attribute__((export_name("run"))) int32_t run(void)

enum {
    PALYRA_NOT_GRANTED = -1,
    PALYRA_BAD_ARGUMENT = -2,
    PALYRA_ABSENT = -3,
    PALYRA_FAILED = -4,
    PALYRA_TOO_LARGE = -5
};

enum { PALYRA_TRACE, PALYRA_DEBUG, PALYRA_INFO, PALYRA_WARNING, PALYRA_ERROR };

/* how many of each were granted, and the n-th handle */
PALYRA_IMPORT("http-count") int32_t palyra_http_count(void);
PALYRA_IMPORT("http-handle") int32_t palyra_http_handle(int32_t place);
PALYRA_IMPORT("secret-count") int32_t palyra_secret_count(void);
PALYRA_IMPORT("secret-handle") int32_t palyra_secret_handle(int32_t place);
PALYRA_IMPORT("storage-count") int32_t palyra_storage_count(void);
PALYRA_IMPORT("storage-handle") int32_t palyra_storage_handle(int32_t place);
PALYRA_IMPORT("channel-count") int32_t palyra_channel_count(void);
PALYRA_IMPORT("channel-handle") int32_t palyra_channel_handle(int32_t place);

/* JSON text in and out; the last output counts */
PALYRA_IMPORT("input-len") int32_t palyra_input_len(void);
PALYRA_IMPORT("input-read") int32_t palyra_input_read(void *into, uint32_t capacity);
PALYRA_IMPORT("output") int32_t palyra_output(const void *json, uint32_t count);

/* copies what the last of the calls below parked, as much as fits; the rest stays */
PALYRA_IMPORT("take") int32_t palyra_take(void *into, uint32_t capacity);

/* each parks its answer and returns the answer's length */
PALYRA_IMPORT("http-fetch") int32_t palyra_http_fetch(int32_t handle, const void *request, uint32_t count);
PALYRA_IMPORT("secret-get") int32_t palyra_secret_get(int32_t handle);
PALYRA_IMPORT("storage-get") int32_t palyra_storage_get(int32_t handle, const void *key, uint32_t count);
PALYRA_IMPORT("storage-list") int32_t palyra_storage_list(int32_t handle, const void *prefix, uint32_t count);

/* each returns 0 */
PALYRA_IMPORT("storage-put")
int32_t palyra_storage_put(int32_t handle, const void *key, uint32_t key_count, const void *value, uint32_t count);
PALYRA_IMPORT("storage-delete") int32_t palyra_storage_delete(int32_t handle, const void *key, uint32_t count);
PALYRA_IMPORT("channel-send") int32_t palyra_channel_send(int32_t handle, const void *data, uint32_t count);
PALYRA_IMPORT("log") int32_t palyra_log(int32_t level, const void *text, uint32_t count);

#endif
