// MD5 (RFC 1321) of many short texts at a time, as far as checksums of columns need it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace unloader {

constexpr int LANES = 8;                 // texts that are hashed together
constexpr size_t LONGEST_OF_BLOCK = 55;  // bytes of a text that is one block with its padding

// One block of 64 bytes, as words of the machine (little-endian, as MD5 has them).
struct Block {
    uint32_t words[16];
};

// Returns the first eight bytes of a text's hash as a number, the first byte being the highest.
uint64_t md5_number(const char* text, size_t size);

// Returns the sum of these numbers of eight blocks that are whole messages with their padding.
uint64_t md5_sum_of_blocks(const Block* blocks);

// Adds up the numbers of texts; short ones wait until there are eight.
class Md5Sum {
public:
    void add(const char* text, size_t size);
    uint64_t finish();

private:
    Block blocks_[LANES];
    int waiting_ = 0;
    uint64_t sum_ = 0;
};

}  // namespace unloader
