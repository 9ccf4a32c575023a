// Decimal digits of unsigned integers, eight at a time: what numbers and moments share.
//
// Little-endian machines only, as the Arrow buffers that values come from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace unloader {

constexpr uint64_t POWERS_OF_TEN[20] = {
    1u,
    10u,
    100u,
    1000u,
    10000u,
    100000u,
    1000000u,
    10000000u,
    100000000u,
    1000000000u,
    10000000000u,
    100000000000u,
    1000000000000u,
    10000000000000u,
    100000000000000u,
    1000000000000000u,
    10000000000000000u,
    100000000000000000u,
    1000000000000000000u,
    10000000000000000000u,
};

constexpr uint64_t EIGHT_DIGITS = 100000000u;
constexpr uint64_t EIGHT_ZEROS = 0x3030303030303030u;

// How many digits a number has, 1 for 0.
inline int digit_count(uint64_t value) {
    // 1233 / 4096 is a little less than log10(2), close enough for 64 bits.
    const int bits = 64 - __builtin_clzll(value | 1);
    const int digits = (bits * 1233) >> 12;
    return digits + (value >= POWERS_OF_TEN[digits] || value == 0);
}

// Takes four numbers below 100, one in 16 bits, and returns their digits as numbers, one a byte;
// the first is the lowest. All are divided at once, by a multiplication that is exact for so few.
inline uint64_t digits_of_four(uint64_t numbers) {
    const uint64_t tens = (numbers * 103 >> 10) & 0x000F000F000F000Fu;
    return tens | (numbers - tens * 10) << 8;
}

// The same of a number below 10^8.
inline uint64_t eight_numbers(uint32_t value) {
    const uint64_t halves = value / 10000 | uint64_t{value % 10000} << 32;
    const uint64_t hundreds = (halves * 10486 >> 20) & 0x0000007F0000007Fu;
    return digits_of_four(hundreds | (halves - hundreds * 100) << 16);
}

// The same as characters.
inline uint64_t eight_digits(uint32_t value) { return eight_numbers(value) | EIGHT_ZEROS; }

inline void write_eight(char* out, uint32_t value) {
    const uint64_t digits = eight_digits(value);
    std::memcpy(out, &digits, 8);
}

// Writes two digits of a number below 100.
inline void write_pair(char* out, uint32_t value) {
    const uint64_t digits = digits_of_four(value) | EIGHT_ZEROS;
    std::memcpy(out, &digits, 2);
}

// Writes a number's digits, below 10^8, and returns their end; touches 8 bytes.
inline char* write_up_to_eight(char* out, uint32_t value) {
    const int count = digit_count(value);
    const uint64_t digits = eight_digits(value) >> (64 - 8 * count);
    std::memcpy(out, &digits, 8);
    return out + count;
}

// Writes a number's digits and returns their end; touches at most 20 bytes.
inline char* write_digits(char* out, uint64_t value) {
    if (value < EIGHT_DIGITS) return write_up_to_eight(out, static_cast<uint32_t>(value));
    uint64_t high = value / EIGHT_DIGITS;
    const auto low = static_cast<uint32_t>(value - high * EIGHT_DIGITS);
    if (high >= EIGHT_DIGITS) {
        const uint64_t top = high / EIGHT_DIGITS;
        out = write_up_to_eight(out, static_cast<uint32_t>(top));
        write_eight(out, static_cast<uint32_t>(high - top * EIGHT_DIGITS));
        out += 8;
    } else {
        out = write_up_to_eight(out, static_cast<uint32_t>(high));
    }
    write_eight(out, low);
    return out + 8;
}

// Writes exactly so many digits, with zeros in front of a number that has fewer; none has more.
inline void write_padded(char* out, uint64_t value, int count) {
    while (count >= 8) {
        count -= 8;
        const uint64_t rest = value / EIGHT_DIGITS;
        write_eight(out + count, static_cast<uint32_t>(value - rest * EIGHT_DIGITS));
        value = rest;
    }
    uint64_t digits = eight_digits(static_cast<uint32_t>(value)) >> (64 - 8 * count) % 64;
    if (count & 4) {
        std::memcpy(out, &digits, 4);
        out += 4;
        digits >>= 32;
    }
    if (count & 2) {
        std::memcpy(out, &digits, 2);
        out += 2;
        digits >>= 16;
    }
    if (count & 1) *out = static_cast<char>(digits);
}

// Writes the first `count` of the nine digits of a fraction of a second, 1 to 9.
inline void write_fraction(char* out, uint32_t nanoseconds, int count) {
    const uint32_t front = nanoseconds / 10;
    const uint64_t digits = eight_digits(front);
    switch (count) {
        case 9:
            out[8] = static_cast<char>('0' + (nanoseconds - front * 10));
            std::memcpy(out, &digits, 8);
            break;
        case 6:
            std::memcpy(out, &digits, 6);
            break;
        case 3:
            std::memcpy(out, &digits, 3);
            break;
        default:
            std::memcpy(out, &digits, static_cast<size_t>(count));
    }
}

// Writes a point and the digits of a fraction of a second that is not 0, up to the last that is
// not; touches 10 bytes.
inline char* write_trimmed_fraction(char* out, uint32_t nanoseconds) {
    *out = '.';
    const uint32_t front = nanoseconds / 10;
    const uint32_t last = nanoseconds - front * 10;
    const uint64_t numbers = eight_numbers(front);
    const uint64_t digits = numbers | EIGHT_ZEROS;
    std::memcpy(out + 1, &digits, 8);
    out[9] = static_cast<char>('0' + last);
    if (last) return out + 10;
    return out + 9 - __builtin_clzll(numbers) / 8;
}

}  // namespace unloader
