#include "levels.h"

#include <cstring>

#include "../../../native/src/arrow_abi.h"
#include "packing.h"

namespace unloader {

void Levels::put(const uint8_t* validity, int64_t first, size_t rows) {
    if (validity) {
        levels_.resize(rows_, 1);
        for (size_t row = 0; row < rows; ++row) {
            const bool there = bit_at(validity, first + static_cast<int64_t>(row));
            levels_.push_back(there);
            nulls_ += !there;
        }
    }
    rows_ += rows;
}

void Levels::finish(Bytes& values, bool nullable) {
    if (nullable) {
        Bytes encoded;
        if (nulls_) {
            levels_.resize(rows_, 1);
            put_hybrid(encoded, levels_.data(), rows_, 1);
        } else {
            char run[11];
            char* const end = put_varint(run, rows_ << 1);
            *end = 1;
            encoded.append(run, static_cast<size_t>(end + 1 - run));
        }
        const auto size = static_cast<uint32_t>(encoded.size());
        char* const out = values.prepend(4 + encoded.size());
        std::memcpy(out, &size, 4);
        std::memcpy(out + 4, encoded.data(), encoded.size());
    }
    rows_ = nulls_ = 0;
    levels_.clear();
}

}  // namespace unloader
