// Integers and lengths of the wire, read as far as the bytes reach.
#pragma once

#include <cstddef>
#include <cstdint>

namespace unloader::oracle {

class Reader {
public:
    Reader(const uint8_t* start, const uint8_t* end) : next_(start), end_(end) {}

    const uint8_t* next() const { return next_; }
    // The bytes ended before what was to be read.
    bool short_of_bytes() const { return short_; }
    // Something cannot be what it should be, whatever follows.
    bool wrong() const { return wrong_; }
    bool ok() const { return !short_ && !wrong_; }

    uint8_t byte() {
        if (next_ == end_) {
            short_ = true;
            return 0;
        }
        return *next_++;
    }

    // A length and as many bytes, the highest first. A negative number has a bit in its length.
    uint64_t number(size_t widest) {
        const size_t size = byte() & 0x7F;
        if (size > widest) {
            wrong_ = true;
            return 0;
        }
        uint64_t value = 0;
        for (size_t index = 0; index < size; index++) value = value << 8 | byte();
        return value;
    }

    const uint8_t* skip(size_t size) {
        if (static_cast<size_t>(end_ - next_) < size) {
            short_ = true;
            next_ = end_;
            return end_;
        }
        const uint8_t* start = next_;
        next_ += size;
        return start;
    }

    // A number of bytes, and if it is not 0 a value with a length of its own.
    void skip_sized() {
        if (number(4) == 0 || !ok()) return;
        const uint8_t size = byte();
        if (size == LONG) {
            while (ok()) {
                const uint64_t chunk = number(4);
                if (chunk == 0) return;
                skip(chunk);
            }
        } else if (size != ABSENT) {
            skip(size);
        }
    }

    static constexpr uint8_t LONG = 0xFE;    // chunks follow
    static constexpr uint8_t ABSENT = 0xFF;  // NULL

private:
    const uint8_t* next_;
    const uint8_t* end_;
    bool short_ = false;
    bool wrong_ = false;
};

}  // namespace unloader::oracle
