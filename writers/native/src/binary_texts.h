// Binary values and UUIDs as text: writers.text.string_arrays for one value at a time.
#pragma once

#include <cstddef>
#include <string_view>

#include "description.h"

namespace unloader {

constexpr size_t UUID_TEXT_BYTES = 36;

// Bytes of the text of so many bytes.
size_t binary_bound(BinaryForm form, size_t bytes);

char* write_binary(char* out, std::string_view value, BinaryForm form);

// Of 16 bytes, as 8-4-4-4-12 lower-case hexadecimal digits.
char* write_uuid(char* out, std::string_view value);

}  // namespace unloader
