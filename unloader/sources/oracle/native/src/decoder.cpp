// The library's interface: plain C, for unloader.sources.oracle.native.decoder. Nothing is thrown
// out of here.
#include <cstddef>
#include <cstdint>
#include <exception>

#include "response.h"

#define UNLOADER_EXPORT extern "C" __attribute__((visibility("default")))

using unloader::oracle::Description;
using unloader::oracle::Progress;
using unloader::oracle::Response;

namespace {

// Raised with every change of this interface; the number is also in library.py.
constexpr uint32_t ABI_VERSION = 2;

// Besides those of unloader::oracle::Refusal.
constexpr int32_t NO_MEMORY = -1;

}  // namespace

UNLOADER_EXPORT uint32_t unloader_fetch_abi_version() { return ABI_VERSION; }

UNLOADER_EXPORT Response* unloader_fetch_open(const Description* columns, size_t count) {
    try {
        return new Response(columns, count);
    } catch (const std::exception&) {
        return nullptr;
    }
}

UNLOADER_EXPORT void unloader_fetch_close(Response* response) { delete response; }

UNLOADER_EXPORT int32_t unloader_fetch_begin(Response* response, int64_t most_rows) {
    try {
        response->begin(most_rows);
        return 0;
    } catch (const std::exception&) {
        return NO_MEMORY;
    }
}

UNLOADER_EXPORT int32_t unloader_fetch_feed(Response* response, const uint8_t* bytes, size_t size) {
    try {
        return static_cast<int32_t>(response->feed(bytes, size));
    } catch (const std::exception&) {
        return NO_MEMORY;
    }
}

// What is for the driver, until `unloader_fetch_passed` is called; returns how many bytes.
UNLOADER_EXPORT size_t unloader_fetch_output(Response* response, const uint8_t** bytes) {
    *bytes = response->output().data();
    return response->output().size();
}

UNLOADER_EXPORT void unloader_fetch_passed(Response* response) { response->output().clear(); }

// A packet of which a part has come; returns how many bytes.
UNLOADER_EXPORT size_t unloader_fetch_partial(Response* response, const uint8_t** bytes) {
    *bytes = response->partial().data();
    return response->partial().size();
}

UNLOADER_EXPORT int32_t unloader_fetch_finish(Response* response) {
    return static_cast<int32_t>(response->finish());
}

UNLOADER_EXPORT void unloader_fetch_progress(const Response* response, Progress* progress) {
    *progress = response->progress();
}

UNLOADER_EXPORT void unloader_fetch_repeats_before(const Response* response, int64_t* counts) {
    response->repeats_before(counts);
}

// Moves the rows of the response into one array for each column.
UNLOADER_EXPORT int32_t unloader_fetch_take(Response* response, ArrowArray* arrays) {
    try {
        response->take(arrays);
        return 0;
    } catch (const std::exception&) {
        return NO_MEMORY;
    }
}
