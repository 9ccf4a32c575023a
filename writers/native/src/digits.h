// Decimal digits of unsigned integers, eight at a time: what numbers and moments share.
//
// Little-endian machines only, as the Arrow buffers that values come from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

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

// How many digits a number below 2^32 has, 1 for 0: a number plus the entry of its highest bit has
// them above bit 32 (Kendall Willets's table, made here).
struct DigitCounts {
    uint64_t of_bit[32] = {};

    constexpr DigitCounts() {
        for (int bit = 0; bit < 32; ++bit) {
            uint64_t digits = 1;
            while (digits < 10 && POWERS_OF_TEN[digits] <= uint64_t{1} << bit) ++digits;
            // The first number with one digit more, if it has the same highest bit.
            const uint64_t next = POWERS_OF_TEN[digits];
            const bool both = next >> (bit + 1) == 0;
            of_bit[bit] = both ? ((digits + 1) << 32) - next : digits << 32;
        }
    }
};
constexpr DigitCounts DIGIT_COUNTS;

inline int narrow_digit_count(uint32_t value) {
    const int bit = 31 - __builtin_clz(value | 1);
    return static_cast<int>((value + DIGIT_COUNTS.of_bit[bit]) >> 32);
}

// Writes a number's digits, below 10^8, and returns their end; touches 8 bytes.
inline char* write_up_to_eight(char* out, uint32_t value) {
    const int count = narrow_digit_count(value);
    const uint64_t digits = eight_digits(value) >> (64 - 8 * count);
    std::memcpy(out, &digits, 8);
    return out + count;
}

// The digits of two numbers below 10^8 as characters, eight of each.
struct SixteenDigits {
    uint64_t high;
    uint64_t low;
};

#if defined(__SSE2__)
// Both at once.
inline SixteenDigits sixteen_digits(uint32_t high, uint32_t low) {
    const uint64_t first = high / 10000 | uint64_t{high % 10000} << 32;
    const uint64_t second = low / 10000 | uint64_t{low % 10000} << 32;
    const __m128i fours =
        _mm_set_epi64x(static_cast<int64_t>(second), static_cast<int64_t>(first));
    // n / 100 below 10^4 and n / 10 below 100, by multiplications that are exact there.
    const __m128i hundreds = _mm_srli_epi16(_mm_mulhi_epu16(fours, _mm_set1_epi16(5243)), 3);
    const __m128i rest = _mm_sub_epi16(fours, _mm_mullo_epi16(hundreds, _mm_set1_epi16(100)));
    const __m128i pairs = _mm_or_si128(hundreds, _mm_slli_epi32(rest, 16));
    const __m128i tens = _mm_mulhi_epu16(pairs, _mm_set1_epi16(6554));
    const __m128i ones = _mm_sub_epi16(pairs, _mm_mullo_epi16(tens, _mm_set1_epi16(10)));
    const __m128i numbers = _mm_or_si128(tens, _mm_slli_epi16(ones, 8));
    const __m128i digits = _mm_or_si128(numbers, _mm_set1_epi8('0'));
    return {static_cast<uint64_t>(_mm_cvtsi128_si64(digits)),
            static_cast<uint64_t>(_mm_cvtsi128_si64(_mm_unpackhi_epi64(digits, digits)))};
}
#else
inline SixteenDigits sixteen_digits(uint32_t high, uint32_t low) {
    return {eight_digits(high), eight_digits(low)};
}
#endif

// Writes a number's digits and returns their end; touches at most 20 bytes.
inline char* write_digits(char* out, uint64_t value) {
    if (value < EIGHT_DIGITS) return write_up_to_eight(out, static_cast<uint32_t>(value));
    uint64_t high = value / EIGHT_DIGITS;
    const auto low = static_cast<uint32_t>(value - high * EIGHT_DIGITS);
    if (high >= EIGHT_DIGITS) {
        const uint64_t top = high / EIGHT_DIGITS;
        out = write_up_to_eight(out, static_cast<uint32_t>(top));
        high -= top * EIGHT_DIGITS;
        write_eight(out, static_cast<uint32_t>(high));
        write_eight(out + 8, low);
        return out + 16;
    }
    const int count = narrow_digit_count(static_cast<uint32_t>(high));
    const SixteenDigits digits = sixteen_digits(static_cast<uint32_t>(high), low);
    const uint64_t first = digits.high >> (64 - 8 * count);
    std::memcpy(out, &first, 8);
    std::memcpy(out + count, &digits.low, 8);
    return out + count + 8;
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
