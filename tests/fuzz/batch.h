// A batch made of an input's bytes: Arrow arrays built by hand, and what each value is.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arrow_abi.h"
#include "dialects.h"
#include "input.h"

namespace fuzz {

// The text a value must have; for a float, the number that its text must read as.
struct Expected {
    std::string text;
    std::optional<double> number;
    bool single = false;  // of a number: whether it is a float32
};

using Cell = std::optional<Expected>;

class Batch {
public:
    Batch(const Dialect& dialect, Input& input);

    // An array over the same memory, as often as it is asked for. Each buffer is an allocation of
    // its own that ends with its last byte, so that a sanitizer sees one byte too many.
    ArrowArray array();

    size_t rows() const { return rows_; }
    const std::vector<uint8_t>& kinds() const { return kinds_; }
    // By row.
    const std::vector<std::vector<Cell>>& cells() const { return cells_; }

    // Arrays handed out that were not released again.
    int outstanding() const { return outstanding_; }

private:
    struct Array;
    using Bytes = std::unique_ptr<uint8_t[]>;

    std::unique_ptr<Array> column(const ColumnFacts& facts, Input& input, size_t at);
    std::unique_ptr<Array> values(const ColumnFacts& facts, Input& input, size_t count,
                                  std::vector<Cell>& cells);
    static void release(ArrowArray* array);

    const Dialect& dialect_;
    size_t rows_;
    std::vector<std::vector<Cell>> cells_;
    std::vector<uint8_t> kinds_;
    std::vector<std::shared_ptr<Array>> columns_;
    std::vector<ArrowArray*> children_;
    const void* no_buffer_ = nullptr;
    int64_t offset_ = 0;
    int outstanding_ = 0;
};

}  // namespace fuzz
