// The records of a batch, written one after the other into memory that the caller gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cells.h"
#include "charsets.h"
#include "fixed_cells.h"

namespace unloader {

// What is the same for all batches of one schema and format. Threads may share it.
struct RecordStyle {
    // Throws std::invalid_argument for a malformed description.
    RecordStyle(const uint8_t* description, size_t size);

    std::unique_ptr<Format> format;
    std::unique_ptr<Enclosing> enclosing;
    std::vector<ColumnStyle> columns;
    std::unique_ptr<Charset> charset;  // nullptr: UTF-8
    size_t prefix_bytes = 0;
    std::string blank;      // in the character set, for records of fixed width
    std::string fixed_end;  // the end of line of these
    size_t fixed_bytes = 0; // of one of these, 0: records are delimited
};

// Why `fill` stopped; the numbers are those of writers.native.encoder.
enum class Status : int32_t {
    DONE = 0,       // all rows are written
    FULL = 1,       // the next record may not fit, or as many rows as asked are written
    REFUSED = 2,    // the plain encoder knows what is wrong with the next record
    UNDECIDED = 3,  // the plain encoder may have a text for a value that this one has not
};

// As writers.native.encoder declares it.
struct Progress {
    int64_t rows;     // of the batch, written so far
    uint64_t bytes;   // written by the last call
    uint64_t needed;  // FULL: bytes of room with which the next record fits for sure
    int64_t column;   // UNDECIDED: of the value
};

class Records {
public:
    // Takes the array over. `kinds` are those of its columns: those of the style, or TEXT32 or
    // TEXT64 for a column that the plain encoder made text of. Throws std::invalid_argument where
    // the array is not of the style.
    Records(const RecordStyle& style, ArrowArray* array, const uint8_t* kinds);
    ~Records();
    Records(const Records&) = delete;
    Records& operator=(const Records&) = delete;

    // Writes whole records, as many as fit and at most `most_rows`, on from where the last call
    // stopped.
    Status fill(char* out, size_t room, int64_t most_rows, Progress& progress);

private:
    char* write_fixed(char* out, int64_t count, Status& status, Progress& progress);
    char* write_fields(char* out, Status& status, Progress& progress);
    int64_t rows_that_fit(int64_t most_rows, size_t room, size_t& needed);
    size_t bound(int64_t count) const;
    size_t text_bound(int64_t count) const;
    char* write_rows(char* out, int64_t count, Status& status, Progress& progress);
    char* write_text(char* out, Status& status, Progress& progress);
    char* finish(char* prefix, char* end);

    const RecordStyle& style_;
    ArrowArray array_;
    std::vector<Column> columns_;
    std::vector<Cells> cells_;
    std::vector<FixedCells> fixed_cells_;  // in the place of these
    std::vector<char> text_;  // of a record, where it has to be transcoded
    std::vector<char> prefix_;  // the same for its length
    int64_t row_ = 0;
    int64_t looked_until_ = 0;
};

}  // namespace unloader
