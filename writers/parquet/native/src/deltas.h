// Whole numbers as differences to the one before, in blocks: Parquet's DELTA_BINARY_PACKED.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bytes.h"

namespace unloader {

// `Number` is uint32_t or uint64_t: differences wrap, as the format has it.
template <typename Number>
class Deltas {
public:
    // `headroom`: of the bytes, for what a caller will put in front.
    explicit Deltas(size_t headroom) : bytes_(headroom + HEADER) {}

    // Takes values, which need not be aligned.
    void put(const void* values, size_t count);

    // Bytes of the blocks that are whole.
    size_t size() const { return bytes_.size(); }

    // Completes the bytes, and begins anew once they are released or cleared.
    Bytes& finish();

private:
    static constexpr size_t BLOCK = 128;
    static constexpr size_t HEADER = 24;

    void end_block();

    Bytes bytes_;
    Number deltas_[BLOCK];
    size_t held_ = 0;
    Number first_ = 0;
    Number last_ = 0;
    uint64_t count_ = 0;
};

extern template class Deltas<uint32_t>;
extern template class Deltas<uint64_t>;

}  // namespace unloader
