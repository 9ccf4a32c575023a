// The decimal separator, which is one byte as a rule.
#pragma once

#include <cstddef>
#include <cstring>

namespace unloader {

inline char* write_separator(char* out, const char* separator, size_t bytes) {
    if (bytes == 1) {
        *out = *separator;
        return out + 1;
    }
    std::memcpy(out, separator, bytes);
    return out + bytes;
}

}  // namespace unloader
