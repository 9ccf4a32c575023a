// Memory that columns grow in and Arrow arrays keep; what is let go serves the next batch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace unloader::oracle {

// Bytes that only grow; taken over by an Arrow array in the end. Never filled with zeros first.
class Memory {
public:
    Memory() = default;
    Memory(Memory&& other) noexcept;
    Memory& operator=(Memory&& other) noexcept;
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    ~Memory();

    uint8_t* data() const { return data_; }
    size_t room() const { return room_; }

    // Keep the first `used` bytes and have room for `least`. Throws std::bad_alloc.
    void grow(size_t least, size_t used);

private:
    uint8_t* data_ = nullptr;
    size_t room_ = 0;
};

}  // namespace unloader::oracle
