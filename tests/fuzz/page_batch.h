// A batch for the encoder of Parquet pages, made of an input's bytes: Arrow arrays built by hand,
// and what each value must be in the file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../../writers/native/src/arrow_abi.h"
#include "input.h"
#include "page.h"

namespace fuzz {

// A value as Parquet stores it: little-endian numbers, one byte of a truth value; nothing: NULL.
using Stored = std::optional<std::string>;

// Any column that writers.parquet.native.pages knows, with any encoding it has.
unloader::ColumnSpec column_spec(Input& input, bool bounds);

class PageBatch {
public:
    PageBatch(const std::vector<unloader::ColumnSpec>& specs, Input& input);

    // Some of the rows, over the same memory, as often as it is asked for. Each buffer is an
    // allocation of its own that ends with its last byte, so that a sanitizer sees one too many.
    ArrowArray array(size_t first, size_t rows);

    size_t rows() const { return rows_; }
    // By column.
    const std::vector<std::vector<Stored>>& values() const { return values_; }
    // The first column with a value that its type in Parquet cannot hold.
    std::optional<size_t> refused() const { return refused_; }
    int outstanding() const { return outstanding_; }

private:
    struct Child;

    std::unique_ptr<Child> child(const unloader::ColumnSpec& spec, Input& input);
    static void release(ArrowArray* array);

    size_t rows_;
    size_t behind_;  // rows of the children in front of those of the batch
    std::vector<std::vector<Stored>> values_;
    std::vector<std::shared_ptr<Child>> columns_;
    std::vector<ArrowArray*> children_;
    std::optional<size_t> refused_;
    const void* no_buffer_ = nullptr;
    int outstanding_ = 0;
};

}  // namespace fuzz
