// Takes decisions off the front of an input; once it is used up all of them are zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace fuzz {

class Input {
public:
    Input(const uint8_t* data, size_t size) : data_(data), rest_(size) {}

    uint8_t byte() {
        if (!rest_) return 0;
        --rest_;
        return *data_++;
    }

    size_t below(size_t count) {
        size_t number = byte();
        if (count > 256) number = number << 8 | byte();
        return number % count;
    }

    template <typename Number>
    Number number() {
        // The first byte says how many follow, so that small numbers cost little.
        const size_t size = below(sizeof(Number) + 1);
        uint8_t bytes[sizeof(Number)];
        const uint8_t fill = size && (byte() & 1) ? 0xFF : 0;
        std::memset(bytes, fill, sizeof bytes);
        for (size_t i = 0; i < size; ++i) bytes[i] = byte();
        Number value;
        std::memcpy(&value, bytes, sizeof value);
        return value;
    }

    bool empty() const { return rest_ == 0; }

private:
    const uint8_t* data_;
    size_t rest_;
};

}  // namespace fuzz
