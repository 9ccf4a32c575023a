#include "numbers.h"

#include <cstring>

#include "digits.h"
#include "separators.h"

namespace unloader {

char* write_unsigned(char* out, uint64_t value) { return write_digits(out, value); }

char* write_signed(char* out, int64_t value) {
    // Without a branch, for signs may be as good as random.
    const uint64_t mask = value < 0 ? ~uint64_t{0} : 0;
    *out = '-';
    return write_digits(out + (value < 0), (static_cast<uint64_t>(value) ^ mask) - mask);
}

namespace {

__extension__ typedef unsigned __int128 uint128;

constexpr uint64_t CHUNK = 10000000000000000000u;  // 10^19
constexpr int CHUNK_DIGITS = 19;
constexpr int LIMBS = 4;
constexpr size_t MOST_DIGITS = 77;  // of 2^255
constexpr ptrdiff_t BLOCK_BYTES = 16;

// floor((2^128 - 1) / CHUNK) - 2^64: CHUNK has its highest bit set, so a limb is divided by it
// with two multiplications (Moeller and Granlund, "Improved division by invariant integers").
constexpr auto CHUNK_INVERSE = static_cast<uint64_t>(~uint128{0} / CHUNK);

// Divides (remainder, limb) by CHUNK, the remainder being less than it.
inline uint64_t divide_by_chunk(uint64_t& remainder, uint64_t limb) {
    const uint128 estimate =
        uint128{CHUNK_INVERSE} * remainder + ((uint128{remainder} << 64) | limb);
    auto quotient = static_cast<uint64_t>(estimate >> 64) + 1;
    uint64_t rest = limb - quotient * CHUNK;
    if (rest > static_cast<uint64_t>(estimate)) {
        quotient--;
        rest += CHUNK;
    }
    if (rest >= CHUNK) {
        quotient++;
        rest -= CHUNK;
    }
    remainder = rest;
    return quotient;
}

// Writes the digits of a number of that many limbs, lowest first, and uses them up.
char* write_limbs(char* out, uint64_t* limbs, int count) {
    uint64_t chunks[LIMBS + 1];
    int chunk_count = 0;
    for (;;) {
        while (count > 0 && limbs[count - 1] == 0) count--;
        if (count == 0 || (count == 1 && limbs[0] < CHUNK)) break;
        uint64_t remainder = 0;
        for (int i = count - 1; i >= 0; i--) limbs[i] = divide_by_chunk(remainder, limbs[i]);
        chunks[chunk_count++] = remainder;
    }
    out = write_digits(out, count ? limbs[0] : 0);
    while (chunk_count > 0) {
        write_padded(out, chunks[--chunk_count], CHUNK_DIGITS);
        out += CHUNK_DIGITS;
    }
    return out;
}

// Whether 64 bits hold the absolute value.
inline bool is_narrow(const uint64_t* limbs, int count) {
    return count == 1 || !(limbs[1] | (count > 2 ? limbs[2] | limbs[3] : 0));
}

// Fills the limbs with the absolute value; returns whether the value is negative.
bool read_absolute(const uint8_t* value, int32_t bytes, uint64_t* limbs, int count) {
    if (bytes == 4) {
        int32_t narrow;
        std::memcpy(&narrow, value, 4);
        limbs[0] = static_cast<uint64_t>(narrow < 0 ? -int64_t{narrow} : int64_t{narrow});
        return narrow < 0;
    }
    if (bytes == 32) {
        std::memcpy(limbs, value, 32);
    } else if (bytes == 16) {
        std::memcpy(limbs, value, 16);
    } else {
        std::memcpy(limbs, value, 8);
    }
    // Without a branch, for signs may be as good as random.
    const bool negative = limbs[count - 1] >> 63;
    const uint64_t mask = negative ? ~uint64_t{0} : 0;
    uint64_t carry = negative;
    for (int i = 0; i < count; i++) {
        limbs[i] = (limbs[i] ^ mask) + carry;
        carry &= limbs[i] == 0;
    }
    return negative;
}

// Puts the separator in front of the last `scale` of the digits between out and end.
char* put_separator(char* out, char* end, const DecimalStyle& style) {
    const auto scale = static_cast<ptrdiff_t>(style.scale);
    if (end - out <= scale) {
        const ptrdiff_t missing = scale + 1 - (end - out);
        std::memmove(out + missing, out, static_cast<size_t>(end - out));
        std::memset(out, '0', static_cast<size_t>(missing));
        end += missing;
    }
    char* const behind = end - scale;
    if (scale <= BLOCK_BYTES && style.separator_bytes == 1) {
        // Of constant size, so that it is done in a register.
        char block[BLOCK_BYTES];
        std::memcpy(block, behind, BLOCK_BYTES);
        std::memcpy(behind + 1, block, BLOCK_BYTES);
        *behind = *style.separator;
        return end + 1;
    }
    std::memmove(behind + style.separator_bytes, behind, static_cast<size_t>(scale));
    write_separator(behind, style.separator, style.separator_bytes);
    return end + style.separator_bytes;
}

// Numbers below 10^8 with at most 7 digits behind a separator of one byte; touches 17 bytes.
inline char* write_small(char* out, uint32_t value, uint32_t scale, char separator) {
    const auto needed = static_cast<uint32_t>(narrow_digit_count(value));
    const uint32_t count = needed > scale ? needed : scale + 1;
    const uint64_t digits = eight_digits(value) >> (64 - 8 * count);
    std::memcpy(out, &digits, 8);
    out += count - scale;
    *out++ = separator;
    const uint64_t behind = digits >> (8 * (count - scale)) % 64;
    std::memcpy(out, &behind, 8);
    return out + scale;
}

}  // namespace

size_t decimal_bound(const DecimalStyle& style) {
    const auto zeros = static_cast<size_t>(style.scale < 0 ? -int64_t{style.scale} : 0);
    const auto behind = static_cast<size_t>(style.scale > 0 ? style.scale : 0);
    const size_t digits = behind + 1 > MOST_DIGITS ? behind + 1 : MOST_DIGITS;
    return 1 + digits + zeros + style.separator_bytes + BLOCK_BYTES;
}

char* write_decimal(char* out, const uint8_t* value, const DecimalStyle& style) {
    uint64_t limbs[LIMBS];
    const int count = style.bytes < 8 ? 1 : style.bytes / 8;
    const bool negative = read_absolute(value, style.bytes, limbs, count);
    *out = '-';
    out += negative;
    const bool narrow = is_narrow(limbs, count);
    if (narrow && limbs[0] < EIGHT_DIGITS && style.scale > 0 && style.scale < 8 &&
        style.separator_bytes == 1) {
        return write_small(out, static_cast<uint32_t>(limbs[0]),
                           static_cast<uint32_t>(style.scale), *style.separator);
    }
    char* end = narrow ? write_digits(out, limbs[0]) : write_limbs(out, limbs, count);
    if (style.scale > 0) return put_separator(out, end, style);
    if (style.scale < 0 && !(narrow && limbs[0] == 0)) {
        const auto zeros = static_cast<size_t>(-int64_t{style.scale});
        std::memset(end, '0', zeros);
        end += zeros;
    }
    return end;
}

}  // namespace unloader
