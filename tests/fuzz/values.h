// Single values made of an input's bytes, and the texts they must have, reckoned the slow way.
#pragma once

#include <cstdint>
#include <string>

#include "dialects.h"
#include "input.h"

namespace fuzz {

// A text made of the dialect's marks, parts of them, and any characters.
std::string text_of(const Dialect& dialect, Input& input);

// Any bytes.
std::string bytes_of(Input& input, size_t most);

std::string binary_text(const Dialect& dialect, const std::string& bytes);
std::string uuid_text(const std::string& bytes);

// Of little-endian two's complement of at most 16 bytes.
std::string decimal_text(const uint8_t* bytes, int32_t width, int32_t scale,
                         const std::string& separator);

// Of days since 1970-01-01: ISO 8601, with " BC" behind years before 1.
std::string date_text(int32_t days);

}  // namespace fuzz
