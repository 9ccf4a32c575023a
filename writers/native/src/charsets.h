// Character sets: from UTF-8 to the bytes that Python's codec of the set makes of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace unloader {

// One output encoding. What it knows is in a description that `writers.native.description` makes of
// Python's own codec; it can be used by several threads at once.
class Charset {
public:
    // Returns nullptr for a malformed description.
    static std::unique_ptr<Charset> make(const uint8_t* description, size_t size);

    virtual ~Charset() = default;

    // The most bytes that `write` may touch for so many bytes of UTF-8.
    virtual size_t bound(size_t utf8_bytes) const = 0;

    // Writes whole characters to `out` and returns the end of what it wrote. Returns nullptr where
    // a character has no code of its own here, or the text is not UTF-8; `out` then holds a part.
    virtual char* write(char* out, const char* text, size_t size) const = 0;
};

}  // namespace unloader
