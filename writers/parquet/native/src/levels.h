// Which rows of a page are there: Parquet's definition levels of columns that are not nested.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bytes.h"

namespace unloader {

class Levels {
public:
    size_t rows() const { return rows_; }
    size_t nulls() const { return nulls_; }

    // Takes rows of a bitmap from a place on; nullptr: none is NULL.
    void put(const uint8_t* validity, int64_t first, size_t rows);

    // Puts them in front of a page's values, and begins anew.
    void finish(Bytes& values, bool nullable);

private:
    size_t rows_ = 0;
    size_t nulls_ = 0;
    std::vector<uint8_t> levels_;  // of the first rows; those behind are there
};

}  // namespace unloader
