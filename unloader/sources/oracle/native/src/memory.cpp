#include "memory.h"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

namespace unloader::oracle {

namespace {

struct Block {
    uint8_t* data;
    size_t room;
};

constexpr size_t STEP = 64 * 1024;  // smaller blocks are left to the C library
constexpr size_t MOST_BLOCKS = 256;

// Under AddressSanitizer every block is a new one, so that it sees who uses one too long.
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t MOST_BYTES = 0;
#else
constexpr size_t MOST_BYTES = 32 * 1024 * 1024;  // the default memory of a worker's fetch
#endif

// Blocks that are free. Pages that the kernel gives out anew cost as much as decoding into them,
// and the worker's C library gives blocks of this size back at once. It holds no more than was in
// use at the same time before.
class Spare {
public:
    // The smallest one of at least as many bytes and not many more; none if there is none.
    Block take(size_t least) {
        const std::lock_guard<std::mutex> held(lock_);
        size_t best = count_;
        for (size_t index = 0; index < count_; index++) {
            const size_t room = blocks_[index].room;
            if (room < least || room / 4 > least) continue;
            if (best == count_ || room < blocks_[best].room) best = index;
        }
        if (best == count_) return {nullptr, 0};
        const Block found = blocks_[best];
        blocks_[best] = blocks_[--count_];
        bytes_ -= found.room;
        return found;
    }

    void give(Block block) {
        if (block.room >= STEP) {
            const std::lock_guard<std::mutex> held(lock_);
            if (count_ < MOST_BLOCKS && bytes_ + block.room <= MOST_BYTES) {
                blocks_[count_++] = block;
                bytes_ += block.room;
                return;
            }
        }
        std::free(block.data);
    }

private:
    std::mutex lock_;
    Block blocks_[MOST_BLOCKS];
    size_t count_ = 0;
    size_t bytes_ = 0;
};

Spare& spare() {
    // Never destroyed: arrays may be released while the process ends.
    static Spare* const all = new Spare;
    return *all;
}

}  // namespace

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), room_(std::exchange(other.room_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(room_, other.room_);
    return *this;
}

Memory::~Memory() {
    if (data_ != nullptr) spare().give({data_, room_});
}

void Memory::grow(size_t least, size_t used) {
    if (least <= room_) return;
    size_t room = least < 2 * room_ ? 2 * room_ : least;
    Block found{nullptr, 0};
    if (room >= STEP) {
        room = (room + STEP - 1) / STEP * STEP;
        found = spare().take(room);
    }
    if (found.data == nullptr) {
        void* data = std::realloc(data_, room);
        if (data == nullptr) throw std::bad_alloc();
        data_ = static_cast<uint8_t*>(data);
        room_ = room;
        return;
    }
    if (data_ != nullptr) {
        std::memcpy(found.data, data_, used);
        spare().give({data_, room_});
    }
    data_ = found.data;
    room_ = found.room;
}

}  // namespace unloader::oracle
