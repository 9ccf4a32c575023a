// Arrow's C data interface, as its specification gives it.
#pragma once

#include <cstdint>
#include <cstring>

extern "C" {

struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void** buffers;
    ArrowArray** children;
    ArrowArray* dictionary;
    void (*release)(ArrowArray*);
    void* private_data;
};

}  // extern "C"

namespace unloader {

// Buffers that were cut out of a message need not be aligned.
template <typename Value>
Value value_at(const void* values, int64_t index) {
    Value value;
    const auto at = index * static_cast<int64_t>(sizeof value);
    std::memcpy(&value, static_cast<const char*>(values) + at, sizeof value);
    return value;
}

inline bool bit_at(const uint8_t* bits, int64_t index) {
    return (bits[index >> 3] >> (index & 7)) & 1;
}

}  // namespace unloader
