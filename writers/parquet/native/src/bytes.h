// A growing piece of memory with room in front of its content, so that what is known last can stand
// first without a copy of the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "blocks.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Parquet is little-endian, and so must be the machine that this is built for."
#endif

namespace unloader {

class Bytes {
public:
    explicit Bytes(size_t headroom = 64) : headroom_(headroom), begin_(headroom), end_(headroom) {}
    Bytes(const Bytes&) = delete;
    Bytes& operator=(const Bytes&) = delete;
    ~Bytes() { give_block(memory_); }

    size_t size() const { return end_ - begin_; }
    char* data() { return memory_ + begin_; }

    // Returns memory for so many more bytes at the end.
    char* grow(size_t count) {
        if (count > capacity_ - end_ || !memory_) enlarge(count);
        char* const at = memory_ + end_;
        end_ += count;
        return at;
    }

    // Gives back what lies behind `end`, which points into the content.
    void end_at(const char* end) { end_ = static_cast<size_t>(end - memory_); }

    void append(const void* from, size_t count) {
        if (count) std::memcpy(grow(count), from, count);
    }

    // Returns memory for so many more bytes in front.
    char* prepend(size_t count) {
        grow(0);
        if (count > begin_) {
            const size_t shift = count - begin_;
            grow(shift);
            std::memmove(memory_ + begin_ + shift, memory_ + begin_, end_ - shift - begin_);
            begin_ += shift;
        }
        begin_ -= count;
        return memory_ + begin_;
    }

    // Gives the memory away, to be taken back by `give_block`, and begins anew; `data` is asked for before.
    char* release() {
        char* const memory = memory_;
        usual_ = capacity_;
        memory_ = nullptr;
        capacity_ = 0;
        begin_ = end_ = headroom_;
        return memory;
    }

    void clear() { begin_ = end_ = headroom_; }

private:
    void enlarge(size_t count) {
        size_t wanted = capacity_ ? capacity_ * 2 : usual_;
        if (wanted < end_ + count) wanted = end_ + count;
        size_t capacity = 0;
        char* const memory = take_block(wanted, capacity);
        // Not the room in front, which may be large and was never touched.
        if (memory_) std::memcpy(memory + begin_, memory_ + begin_, end_ - begin_);
        give_block(memory_);
        memory_ = memory;
        capacity_ = capacity;
    }

    size_t headroom_;
    size_t usual_ = 4096;
    char* memory_ = nullptr;
    size_t capacity_ = 0;
    size_t begin_;
    size_t end_;
};

inline char* put_varint(char* out, uint64_t value) {
    while (value >= 0x80) {
        *out++ = static_cast<char>(value | 0x80);
        value >>= 7;
    }
    *out++ = static_cast<char>(value);
    return out;
}

inline uint64_t zigzag(int64_t value) {
    return (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
}

}  // namespace unloader
