#include "md5.h"

#include <cstring>

// Vectors are passed between functions of this file alone.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace unloader {

namespace {

constexpr uint32_t SINES[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a,
    0xa8304613, 0xfd469501, 0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be,
    0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821, 0xf61e2562, 0xc040b340,
    0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8,
    0x676f02d9, 0x8d2a4c8a, 0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c,
    0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70, 0x289b7ec6, 0xeaa127fa,
    0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92,
    0xffeff47d, 0x85845dd1, 0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1,
    0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391,
};
constexpr int SHIFTS[4][4] = {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};
constexpr uint32_t START[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};

// Eight numbers that the compiler computes with together, in as many registers as they need.
typedef uint32_t Vector __attribute__((vector_size(4 * LANES)));

#define UNLOADER_INLINE inline __attribute__((always_inline))

template <typename Word>
UNLOADER_INLINE Word rotated(Word value, int count) {
    return (value << count) | (value >> (32 - count));
}

// The 64 steps over one block; `Word` is one number, or one of each lane.
template <typename Word>
UNLOADER_INLINE void steps(Word state[4], const Word words[16]) {
    Word a = state[0], b = state[1], c = state[2], d = state[3];
#pragma GCC unroll 64
    for (int step = 0; step < 64; step++) {
        Word mixed;
        int word;
        if (step < 16) {
            mixed = d ^ (b & (c ^ d));
            word = step;
        } else if (step < 32) {
            mixed = c ^ (d & (b ^ c));
            word = (5 * step + 1) & 15;
        } else if (step < 48) {
            mixed = b ^ c ^ d;
            word = (3 * step + 5) & 15;
        } else {
            mixed = c ^ (b | ~d);
            word = (7 * step) & 15;
        }
        const Word turned = rotated<Word>(a + mixed + words[word] + SINES[step],
                                          SHIFTS[step / 16][step % 4]);
        a = d;
        d = c;
        c = b;
        b = b + turned;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
}

UNLOADER_INLINE uint64_t number_of(uint32_t first, uint32_t second) {
    return uint64_t{__builtin_bswap32(first)} << 32 | __builtin_bswap32(second);
}

UNLOADER_INLINE uint64_t sum_of_blocks(const Block* blocks) {
    Vector words[16], state[4];
    for (int word = 0; word < 16; word++)
        for (int lane = 0; lane < LANES; lane++) words[word][lane] = blocks[lane].words[word];
    for (int part = 0; part < 4; part++) state[part] = Vector{} + START[part];
    steps<Vector>(state, words);
    uint64_t sum = 0;
    for (int lane = 0; lane < LANES; lane++) sum += number_of(state[0][lane], state[1][lane]);
    return sum;
}

uint64_t sum_plain(const Block* blocks) { return sum_of_blocks(blocks); }

#if defined(__x86_64__)
__attribute__((target("avx2"))) uint64_t sum_wide(const Block* blocks) {
    return sum_of_blocks(blocks);
}
#endif

void pad(Block& block, const char* text, size_t size) {
    auto* bytes = reinterpret_cast<char*>(block.words);
    std::memcpy(bytes, text, size);
    std::memset(bytes + size, 0, sizeof block.words - size);
    bytes[size] = static_cast<char>(0x80);
    block.words[14] = static_cast<uint32_t>(size * 8);
}

}  // namespace

uint64_t md5_sum_of_blocks(const Block* blocks) {
#if defined(__x86_64__)
    static const bool wide = __builtin_cpu_supports("avx2");
    if (wide) return sum_wide(blocks);
#endif
    return sum_plain(blocks);
}

uint64_t md5_number(const char* text, size_t size) {
    uint32_t state[4] = {START[0], START[1], START[2], START[3]};
    Block block;
    size_t left = size;
    for (; left >= sizeof block; left -= sizeof block, text += sizeof block) {
        std::memcpy(block.words, text, sizeof block);
        steps<uint32_t>(state, block.words);
    }
    auto* bytes = reinterpret_cast<char*>(block.words);
    std::memset(bytes, 0, sizeof block);
    std::memcpy(bytes, text, left);
    bytes[left] = static_cast<char>(0x80);
    if (left > LONGEST_OF_BLOCK) {
        steps<uint32_t>(state, block.words);
        std::memset(bytes, 0, sizeof block);
    }
    const uint64_t bits = uint64_t{size} * 8;
    std::memcpy(bytes + 56, &bits, 8);
    steps<uint32_t>(state, block.words);
    return number_of(state[0], state[1]);
}

void Md5Sum::add(const char* text, size_t size) {
    if (size > LONGEST_OF_BLOCK) {
        sum_ += md5_number(text, size);
        return;
    }
    pad(blocks_[waiting_++], text, size);
    if (waiting_ == LANES) {
        sum_ += md5_sum_of_blocks(blocks_);
        waiting_ = 0;
    }
}

uint64_t Md5Sum::finish() {
    for (int lane = 0; lane < waiting_; lane++) {
        const auto* bytes = reinterpret_cast<const char*>(blocks_[lane].words);
        sum_ += md5_number(bytes, blocks_[lane].words[14] / 8);
    }
    waiting_ = 0;
    return sum_;
}

}  // namespace unloader
