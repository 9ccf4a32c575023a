// Copies of a few bytes that take one or two instructions, by copying more than asked.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

namespace unloader {

// Bytes behind the end of what is written that may be overwritten, too.
constexpr size_t SLACK = 32;

// Copies a text at the price of 32 bytes where it is short. `limit` is the end of what may be read.
inline char* put_text(char* out, const char* text, size_t size, const char* limit) {
    if (size <= SLACK && limit - text >= static_cast<ptrdiff_t>(SLACK)) {
        std::memcpy(out, text, SLACK);
    } else if (size) {
        std::memcpy(out, text, size);
    }
    return out + size;
}

// A text that is written again and again.
class Literal {
public:
    Literal() = default;

    explicit Literal(std::string text) : size_(text.size()), text_(std::move(text)) {
        std::memcpy(start_, text_.data(), size_ < WIDTH ? size_ : WIDTH);
    }

    char* put(char* out) const {
        std::memcpy(out, start_, WIDTH);
        if (size_ > WIDTH) std::memcpy(out, text_.data(), size_);
        return out + size_;
    }

    size_t size() const { return size_; }

private:
    static constexpr size_t WIDTH = 16;

    char start_[WIDTH] = {};
    size_t size_ = 0;
    std::string text_;
};

}  // namespace unloader
