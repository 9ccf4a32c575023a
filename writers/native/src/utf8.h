// UTF-8 taken apart, strictly: what Python's decoder refuses is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace unloader {

constexpr uint32_t NOT_UTF8 = 0xFFFFFFFF;

inline bool is_continuation(uint8_t byte) { return (byte & 0xC0) == 0x80; }

// Returns the character at `next` and moves past it; NOT_UTF8, without a move, for anything else.
inline uint32_t next_character(const uint8_t*& next, const uint8_t* end) {
    const uint32_t first = *next;
    const ptrdiff_t left = end - next;
    if (first < 0x80) {
        next += 1;
        return first;
    }
    if (first >= 0xE0 && first < 0xF0) {
        if (left < 3 || !is_continuation(next[1]) || !is_continuation(next[2])) return NOT_UTF8;
        const uint32_t character =
            (first & 0x0F) << 12 | (next[1] & 0x3Fu) << 6 | (next[2] & 0x3Fu);
        if (character < 0x800 || (character >= 0xD800 && character < 0xE000)) return NOT_UTF8;
        next += 3;
        return character;
    }
    if (first >= 0xC2 && first < 0xE0) {
        if (left < 2 || !is_continuation(next[1])) return NOT_UTF8;
        const uint32_t character = (first & 0x1F) << 6 | (next[1] & 0x3Fu);
        next += 2;
        return character;
    }
    if (first < 0xF0 || left < 4 || !is_continuation(next[1]) || !is_continuation(next[2]) ||
        !is_continuation(next[3])) {
        return NOT_UTF8;
    }
    const uint32_t character = (first & 0x07) << 18 | (next[1] & 0x3Fu) << 12 |
                               (next[2] & 0x3Fu) << 6 | (next[3] & 0x3Fu);
    if (first > 0xF4 || character < 0x10000 || character > 0x10FFFF) return NOT_UTF8;
    next += 4;
    return character;
}

// Whether the eight bytes at `next` are ASCII.
inline bool eight_ascii(const uint8_t* next) {
    uint64_t block;
    std::memcpy(&block, next, sizeof block);
    return (block & UINT64_C(0x8080808080808080)) == 0;
}

// Copies ASCII up to the first other byte, by blocks; returns how many bytes.
inline size_t copy_ascii(char* out, const uint8_t* next, const uint8_t* end) {
    const uint8_t* start = next;
    while (end - next >= 8 && eight_ascii(next)) {
        std::memcpy(out, next, 8);
        out += 8;
        next += 8;
    }
    while (next < end && *next < 0x80) *out++ = static_cast<char>(*next++);
    return static_cast<size_t>(next - start);
}

}  // namespace unloader
