// UTF-16 and UTF-32, by arithmetic.
#pragma once

#include <cstdint>
#include <memory>

#include "charsets.h"

namespace unloader {

// Returns the set with this number in a description (1 to 4: UTF-16 and UTF-32, each little-endian
// before big-endian), nullptr for another number.
std::unique_ptr<Charset> make_wide(uint8_t kind);

}  // namespace unloader
