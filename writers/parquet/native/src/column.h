// One column of a row group on its way into pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "../../../native/src/arrow_abi.h"
#include "bytes.h"
#include "levels.h"
#include "page.h"

namespace unloader {

constexpr size_t STEP_ROWS = 1024;
constexpr size_t DICTIONARY_BYTES = 1024 * 1024;  // a larger one is given up for plain values

// Rows of an array, from `first` on in its buffers.
struct Rows {
    const ArrowArray& array;
    const uint8_t* validity;  // nullptr: none is NULL
    int64_t first;
    size_t count;

    bool there(size_t row) const {
        return !validity || bit_at(validity, first + static_cast<int64_t>(row));
    }
};

// Where pages end depends on the rows alone: they are looked at after every STEP_ROWS rows, or
// earlier where a column says so because of its bytes.
class Column {
public:
    Column(const ColumnSpec& spec, size_t page_bytes) : spec_(spec), page_bytes_(page_bytes) {}
    Column(const Column&) = delete;
    Column& operator=(const Column&) = delete;
    virtual ~Column();

    // Takes all rows of an array. Throws Refused.
    void append(const ArrowArray& array, int64_t first, size_t rows);

    // Ends the last page of a row group.
    void finish();

    std::deque<Page> pages;  // ready; the taker removes them and gives their blocks back

protected:
    // Takes the first of the rows, one or more; returns how many, and whether pages are looked at.
    struct Taken {
        size_t rows;
        bool looked_at;
    };
    virtual Taken put(const Rows& rows) = 0;
    // Bytes of the page so far, about.
    virtual size_t size() = 0;
    // Returns the values of the page, and tells their encoding and bounds.
    virtual Bytes& end_values(Page& page) = 0;
    // Returns the entries of a dictionary that a page needs, nullptr: there is none.
    virtual Bytes* end_dictionary(int64_t& entries) = 0;
    // Bytes of a dictionary that is in use; it may be given up.
    virtual size_t dictionary_size() { return 0; }
    virtual void give_up_dictionary() {}

    size_t page_rows() const { return levels_.rows(); }

    const ColumnSpec spec_;
    const size_t page_bytes_;

private:
    void look();
    void end_page();
    void add(Page&& page, Bytes& bytes);

    Levels levels_;
    size_t step_rows_ = 0;
};

// Throws std::invalid_argument where the spec makes no sense.
std::unique_ptr<Column> column_of(const ColumnSpec& spec, size_t page_bytes);
std::unique_ptr<Column> number_column(const ColumnSpec& spec, size_t page_bytes);
std::unique_ptr<Column> byte_column(const ColumnSpec& spec, size_t page_bytes);
std::unique_ptr<Column> boolean_column(const ColumnSpec& spec, size_t page_bytes);

}  // namespace unloader
