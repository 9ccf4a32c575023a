// Texts of integers, decimals and floats: those of writers.text.number_texts, value by value.
#pragma once

#include <cstddef>
#include <cstdint>

namespace unloader {

// Each writer puts a text at `out` and returns its end. It touches no more bytes than the bound
// says, some of them maybe behind the end it returns.

constexpr size_t INTEGER_BOUND = 20;

char* write_unsigned(char* out, uint64_t value);
char* write_signed(char* out, int64_t value);

struct DecimalStyle {
    int32_t bytes;  // 4, 8, 16 or 32: little-endian two's complement, as Arrow has them
    int32_t scale;  // digits behind the point; below 0, zeros behind the number
    const char* separator;
    size_t separator_bytes;
};

size_t decimal_bound(const DecimalStyle& style);
char* write_decimal(char* out, const uint8_t* value, const DecimalStyle& style);

size_t float_bound(size_t separator_bytes);

// nullptr: cannot be decided here (the library has no std::to_chars of floats).
char* write_double(char* out, double value, const char* separator, size_t separator_bytes);
char* write_float(char* out, float value, const char* separator, size_t separator_bytes);

}  // namespace unloader
