// The text of a value that a checksum is computed of, as docs/verification.md defines it.
//
// Written apart from the encoder of files on purpose: a fault there is not to be repeated here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace unloader {

constexpr size_t LONGEST_VALUE = 64;  // bytes of the text of any number, date or time

char* integer_text(char* out, int64_t value);
char* natural_text(char* out, uint64_t value);
// Without zeros at the end of the fraction.
char* decimal_text(char* out, __int128 value, int scale);
// The bytes of IEEE 754 in hexadecimal digits, the highest first.
char* float_text(char* out, uint64_t bits, int bytes);
char* date_text(char* out, int64_t days);
// Ticks since 1970; `digits` are those of a tick's fraction of a second: 0, 3, 6 or 9.
char* timestamp_text(char* out, int64_t ticks, int digits, bool utc);
char* time_text(char* out, int64_t ticks, int digits);
// A number in digits without a sign +, with one zero before the point at least, and without zeros
// at the end of the fraction; another text as it is. Needs one byte more than the text.
char* number_text(char* out, const char* text, size_t size);

}  // namespace unloader
