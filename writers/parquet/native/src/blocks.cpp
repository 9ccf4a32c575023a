#include "blocks.h"

#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define UNLOADER_ADDRESS_SANITIZER
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define UNLOADER_ADDRESS_SANITIZER
#endif

namespace unloader {

namespace {

#ifdef UNLOADER_ADDRESS_SANITIZER
constexpr bool USED_AGAIN = false;  // it is to see what is touched after it was given back
#else
constexpr bool USED_AGAIN = true;
#endif
constexpr size_t SMALLEST = 4096;
constexpr size_t SIZES = 13;  // each twice the one before; the largest has 16 MiB
constexpr size_t OTHER = SIZES;  // larger ones, which are not kept
constexpr size_t MOST_KEPT = size_t{64} << 20;
constexpr size_t HEADER = 64;  // in front of a block, which so begins with a cache line

struct Header {
    Header* next;  // among those kept
    size_t size;   // its number
};
static_assert(sizeof(Header) <= HEADER, "a block's header has no room");

// What was given back. Never more is kept than was in use at once.
struct Kept {
    std::mutex lock;
    Header* first[SIZES] = {};
    size_t bytes = 0;
};

// It lives as long as the process: the last pages may be let go when all else has ended.
Kept& kept() {
    static Kept& only = *new Kept;
    return only;
}

size_t bytes_of(size_t size) { return SMALLEST << size; }

// Never waits: a process may have been forked while another thread had the lock.
Header* taken_again(size_t size) {
    Kept& all = kept();
    const std::unique_lock<std::mutex> mine(all.lock, std::try_to_lock);
    if (!mine.owns_lock() || !all.first[size]) return nullptr;
    Header* const found = all.first[size];
    all.first[size] = found->next;
    all.bytes -= bytes_of(size);
    return found;
}

bool keep(Header* block) {
    if (block->size == OTHER || !USED_AGAIN) return false;
    Kept& all = kept();
    const std::unique_lock<std::mutex> mine(all.lock, std::try_to_lock);
    if (!mine.owns_lock() || all.bytes + bytes_of(block->size) > MOST_KEPT) return false;
    block->next = all.first[block->size];
    all.first[block->size] = block;
    all.bytes += bytes_of(block->size);
    return true;
}

}  // namespace

char* take_block(size_t count, size_t& capacity) {
    size_t size = 0;
    while (size < SIZES && bytes_of(size) < count) ++size;
    capacity = size == OTHER ? count : bytes_of(size);
    Header* block = size == OTHER ? nullptr : taken_again(size);
    if (!block) {
        if (capacity > SIZE_MAX - HEADER) throw std::bad_alloc();
        block = static_cast<Header*>(std::malloc(HEADER + capacity));
        if (!block) throw std::bad_alloc();
        block->size = size;
    }
    return reinterpret_cast<char*>(block) + HEADER;
}

void give_block(char* memory) {
    if (!memory) return;
    auto* const block = reinterpret_cast<Header*>(memory - HEADER);
    if (!keep(block)) std::free(block);
}

}  // namespace unloader
