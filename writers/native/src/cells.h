// The cells of a column: its values as they stand in the records, with the delimiter behind them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "columns.h"
#include "enclosing.h"
#include "short_copy.h"

namespace unloader {

class Cells {
public:
    // `separator` is what stands behind the cell: a delimiter, or the end of the record. The others
    // must outlive this.
    Cells(const Column& column, const Enclosing& enclosing, const std::string& separator);

    // Chooses the quickest way to write these rows. Must precede what else is asked about them.
    void look_into(int64_t row, int64_t count);

    // Most bytes of the cells of these rows together.
    size_t bound(int64_t row, int64_t count) const;

    // Writes the cell of a row and moves `out` behind it. Touches SLACK bytes more at most.
    Outcome write(char*& out, int64_t row) {
        const int64_t place = may_be_null_ ? column_.place(row) : column_.first() + row;
        if (place < 0) {
            out = null_.put(out);
            return Outcome::WRITTEN;
        }
        switch (step_) {
            case Step::TEXT32_WRAPPED: return wrapped(out, column_.text_at<int32_t>(place));
            case Step::TEXT32_BARE: return bare(out, column_.text_at<int32_t>(place));
            case Step::TEXT64_WRAPPED: return wrapped(out, column_.text_at<int64_t>(place));
            case Step::TEXT64_BARE: return bare(out, column_.text_at<int64_t>(place));
            case Step::INTEGER: {
                char* end = write_signed(opening_.put(out), column_.number_at<int64_t>(place));
                out = closing_.put(end);
                return Outcome::WRITTEN;
            }
            case Step::DECIMAL: {
                const uint8_t* value = column_.decimal_at(place);
                char* end = write_decimal(opening_.put(out), value, column_.style().decimal);
                out = closing_.put(end);
                return Outcome::WRITTEN;
            }
            case Step::SLOT: return from_slot(out, row);
            case Step::LOOKED_AT: return looked_at(out, column_.bytes(place));
            case Step::IN_PLACE: return in_place(out, place);
            default: return searched(out, place);
        }
    }

private:
    // The ways to write a cell.
    enum class Step : uint8_t {
        TEXT32_WRAPPED,  // a text without special bytes, between two enclosures
        TEXT32_BARE,     // the same, bare
        TEXT64_WRAPPED,
        TEXT64_BARE,
        INTEGER,
        DECIMAL,
        SLOT,       // dates and times, made for all rows looked into
        LOOKED_AT,  // bytes that are the text, special ones maybe among them
        IN_PLACE,   // a text without special bytes that is made where it belongs
        SEARCHED,   // a text that is made elsewhere first
    };

    Outcome wrapped(char*& out, std::string_view text) const {
        char* end = put_text(opening_.put(out), text.data(), text.size(), column_.limit());
        out = closing_.put(end);
        return Outcome::WRITTEN;
    }

    Outcome bare(char*& out, std::string_view text) const {
        if (enclosing_.minds(text)) return protect(out, text);
        out = separator_.put(put_text(out, text.data(), text.size(), column_.limit()));
        return Outcome::WRITTEN;
    }

    Outcome from_slot(char*& out, int64_t row) const {
        const auto index = static_cast<size_t>(row - slot_row_);
        const uint32_t size = lengths_[index];
        if (size == Moments::REFUSED) return Outcome::REFUSED;
        const char* text = slots_.data() + index * stride_;
        out = closing_.put(put_text(opening_.put(out), text, size, text + stride_));
        return Outcome::WRITTEN;
    }

    Outcome looked_at(char*& out, std::string_view text) const;
    Outcome in_place(char*& out, int64_t place) const;
    Outcome searched(char*& out, int64_t place);
    Outcome protect(char*& out, std::string_view text) const;
    Step usual_step() const;
    void fill_slots(int64_t row, int64_t count);

    const Column& column_;
    const Enclosing& enclosing_;
    Step usual_;
    Step step_;
    bool may_be_null_;
    bool always_;
    Literal opening_;    // the enclosure of a column that always has it
    Literal closing_;    // the same, and the separator
    Literal separator_;
    Literal null_;       // the cell of a NULL
    std::vector<char> slots_;
    std::vector<uint32_t> lengths_;
    size_t stride_ = 0;
    int64_t slot_row_ = 0;
    std::vector<char> made_;
};

}  // namespace unloader
