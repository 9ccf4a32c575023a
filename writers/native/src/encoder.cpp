// The library's interface: plain C, for writers.native.encoder. Nothing is thrown out of here.
#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>

#include "records.h"

#define UNLOADER_EXPORT extern "C" __attribute__((visibility("default")))

using unloader::Progress;
using unloader::Records;
using unloader::RecordStyle;

namespace {

// Raised with every change of this interface or of a description that is handed over here; the
// number is also in writers.native.encoder.
constexpr uint32_t ABI_VERSION = 3;

// Besides those of unloader::Status.
constexpr int32_t NO_MEMORY = -1;

}  // namespace

UNLOADER_EXPORT uint32_t unloader_abi_version() { return ABI_VERSION; }

// Returns what the other functions take, or nullptr if the description is malformed.
UNLOADER_EXPORT RecordStyle* unloader_open(const uint8_t* description, size_t size) {
    try {
        return new RecordStyle(description, size);
    } catch (const std::exception&) {
        return nullptr;
    }
}

UNLOADER_EXPORT void unloader_close(RecordStyle* style) { delete style; }

// Takes the array over, also where it returns nullptr because the array is not of the style. The
// style must outlive it.
UNLOADER_EXPORT Records* unloader_begin(const RecordStyle* style, ArrowArray* array,
                                        const uint8_t* kinds) {
    try {
        return new Records(*style, array, kinds);
    } catch (const std::exception&) {
        // Whoever exported it has no way of his own to let its memory go.
        if (array->release) array->release(array);
        return nullptr;
    }
}

// See Records::fill.
UNLOADER_EXPORT int32_t unloader_fill(Records* records, char* out, size_t room, int64_t most_rows,
                                      Progress* progress) {
    try {
        return static_cast<int32_t>(records->fill(out, room, most_rows, *progress));
    } catch (const std::exception&) {
        return NO_MEMORY;
    }
}

UNLOADER_EXPORT void unloader_end(Records* records) { delete records; }
