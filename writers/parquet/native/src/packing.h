// Numbers in as few bits as the largest of them takes, in the order of bits that Parquet has.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "bytes.h"

namespace unloader {

constexpr size_t PACKED = 32;  // values that are packed at once; they end at a whole byte

template <typename Number>
unsigned bits_of(Number value) {
    if (!value) return 0;
    if constexpr (sizeof(Number) == 8) return 64 - static_cast<unsigned>(__builtin_clzll(value));
    return 32 - static_cast<unsigned>(__builtin_clz(static_cast<uint32_t>(value)));
}

template <typename Number, unsigned Width>
void pack_width(const Number* values, char* out) {
    uint64_t gathered = 0;
    unsigned filled = 0;
#pragma GCC unroll 32
    for (size_t i = 0; i < PACKED; ++i) {
        const uint64_t value = values[i];
        if constexpr (Width > 0) {
            gathered |= value << filled;
            filled += Width;
            if (filled >= 64) {
                std::memcpy(out, &gathered, 8);
                out += 8;
                filled -= 64;
                gathered = filled ? value >> ((Width - filled) & 63) : 0;
            }
        }
    }
    if (filled) std::memcpy(out, &gathered, 4);
}

template <typename Number, size_t... Widths>
constexpr auto packers_of(std::index_sequence<Widths...>) {
    return std::array<void (*)(const Number*, char*), sizeof...(Widths)>{
        &pack_width<Number, static_cast<unsigned>(Widths)>...};
}

// Writes PACKED values of at most `width` bits each into 4 * width bytes.
template <typename Number>
void pack(const Number* values, unsigned width, char* out) {
    static constexpr auto packers =
        packers_of<Number>(std::make_index_sequence<sizeof(Number) * 8 + 1>());
    packers[width](values, out);
}

// Appends values of `width` bits as runs of equal ones and groups of eight: Parquet's hybrid.
template <typename Number>
void put_hybrid(Bytes& out, const Number* values, size_t count, unsigned width);

extern template void put_hybrid<uint8_t>(Bytes&, const uint8_t*, size_t, unsigned);
extern template void put_hybrid<uint32_t>(Bytes&, const uint32_t*, size_t, unsigned);

}  // namespace unloader
