// Sets of bytes that a text must not hold if it is to be copied as it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace unloader {

class SpecialBytes {
public:
    // Adds the first byte of a mark: where it is missing, the mark is, too.
    void add_first(const std::string& mark);

    bool has(char byte) const { return member_[static_cast<uint8_t>(byte)]; }

    // Tells whether any of the bytes is in a long text. No more than `size` bytes are read.
    bool occur_in(const char* text, size_t size) const;

    // The same for a short text.
    bool occur_in_short(const char* text, size_t size) const {
        unsigned found = 0;
        for (size_t i = 0; i < size; ++i) found |= member_[static_cast<uint8_t>(text[i])];
        return found != 0;
    }

private:
    template <int COUNT>
    bool search(const char* text, size_t size) const;

    static constexpr int MOST_NEEDLES = 8;

    bool member_[256] = {};
    uint8_t needles_[MOST_NEEDLES] = {};
    int count_ = 0;
};

}  // namespace unloader
