// Columns of whole numbers, dates, times, narrow decimals and floating point.
#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "bounds.h"
#include "column.h"
#include "deltas.h"
#include "dictionary.h"

namespace unloader {

namespace {

constexpr size_t HEADROOM = 64 * 1024;  // for levels; memory that is not used costs nothing

// Gathers the values of rows that are there, widened from `From` and multiplied.
template <typename From, typename Number>
size_t gather(const Rows& rows, int32_t factor, Number* out) {
    size_t count = 0;
    bool fits = true;
    for (size_t row = 0; row < rows.count; ++row) {
        if (!rows.there(row)) continue;
        const auto at = rows.first + static_cast<int64_t>(row);
        const auto value = static_cast<int64_t>(value_at<From>(rows.array.buffers[1], at));
        int64_t product;
        if constexpr (sizeof(Number) == 8) {
            fits &= !__builtin_mul_overflow(value, int64_t{factor}, &product);
        } else {
            int32_t narrow;
            // An unsigned number of 32 bits keeps its bits, and has no factor.
            if (factor == 1) {
                narrow = static_cast<int32_t>(value);
            } else {
                fits &= !__builtin_mul_overflow(static_cast<int32_t>(value), factor, &narrow);
            }
            product = narrow;
        }
        out[count++] = static_cast<Number>(product);
    }
    if (!fits) throw Refused("a time is too far away for its unit in Parquet");
    return count;
}

template <typename Number>
size_t gather_decimals(const Rows& rows, Number* out) {
    using Signed = std::make_signed_t<Number>;
    size_t count = 0;
    bool fits = true;
    for (size_t row = 0; row < rows.count; ++row) {
        if (!rows.there(row)) continue;
        const int64_t at = 2 * (rows.first + static_cast<int64_t>(row));
        const auto low = value_at<int64_t>(rows.array.buffers[1], at);
        const auto high = value_at<int64_t>(rows.array.buffers[1], at + 1);
        const auto narrow = static_cast<Signed>(low);
        fits &= high == low >> 63 && narrow == low;
        out[count++] = static_cast<Number>(narrow);
    }
    if (!fits) throw Refused("a decimal has more digits than its type");
    return count;
}

// `Number` has the bits, `Compared` the order.
template <typename Number, typename Compared>
class NumberColumn : public Column {
public:
    NumberColumn(const ColumnSpec& spec, size_t page_bytes)
        : Column(spec, page_bytes), encoding_(static_cast<Encoding>(spec.encoding)) {
        switch (encoding_) {
            case Encoding::PLAIN:
            case Encoding::SPLIT:
            case Encoding::DICTIONARY:
                return;
            case Encoding::DELTAS:
                if (!std::is_floating_point_v<Compared>) return;
                break;
            default:
                break;
        }
        throw std::invalid_argument("numbers have not this encoding");
    }

protected:
    Taken put(const Rows& rows) override {
        Number gathered[STEP_ROWS];
        const void* values = gathered;
        size_t count = rows.count;
        if (as_it_is() && !rows.validity) {
            values = static_cast<const char*>(rows.array.buffers[1]) +
                     rows.first * static_cast<int64_t>(sizeof(Number));
        } else {
            count = gathered_from(rows, gathered);
        }
        if (spec_.bounds) bounds_.put(values, count);
        switch (encoding_) {
            case Encoding::DELTAS:
                deltas_.put(values, count);
                break;
            case Encoding::DICTIONARY:
                for (size_t i = 0; i < count; ++i) {
                    indexes_.put(
                        dictionary_.find(value_at<Number>(values, static_cast<int64_t>(i))));
                }
                break;
            default:
                plain_.append(values, count * sizeof(Number));
        }
        return {rows.count, false};
    }

    size_t size() override {
        if (encoding_ == Encoding::DELTAS) return deltas_.size();
        return encoding_ == Encoding::DICTIONARY ? indexes_.size() : plain_.size();
    }

    Bytes& end_values(Page& page) override {
        page.encoding = encoding_;
        page.bounded = bounds_.finish(page.least, page.greatest);
        switch (encoding_) {
            case Encoding::DELTAS:
                return deltas_.finish();
            case Encoding::DICTIONARY:
                dictionary_used_ = true;
                indexes_.finish(plain_, dictionary_.entries());
                return plain_;
            case Encoding::SPLIT:
                split();
                return split_;
            default:
                return plain_;
        }
    }

    Bytes* end_dictionary(int64_t& entries) override {
        encoding_ = static_cast<Encoding>(spec_.encoding);
        if (!dictionary_used_) return nullptr;
        dictionary_used_ = false;
        entries = static_cast<int64_t>(dictionary_.entries());
        finished_.clear();
        finished_.append(dictionary_.bytes().grow(0) - dictionary_.bytes().size(),
                         dictionary_.bytes().size());
        dictionary_.clear();
        return &finished_;
    }

    size_t dictionary_size() override {
        return encoding_ == Encoding::DICTIONARY ? dictionary_.bytes().size() : 0;
    }
    void give_up_dictionary() override { encoding_ = Encoding::PLAIN; }

private:
    bool as_it_is() const {
        const auto source = static_cast<Source>(spec_.source);
        const bool wide = source == Source::INT64;
        const bool narrow = source == Source::INT32 || source == Source::UINT32;
        return spec_.factor == 1 && (sizeof(Number) == 8 ? wide : narrow);
    }

    size_t gathered_from(const Rows& rows, Number* out) const {
        switch (static_cast<Source>(spec_.source)) {
            case Source::INT8:
                return gather<int8_t>(rows, spec_.factor, out);
            case Source::INT16:
                return gather<int16_t>(rows, spec_.factor, out);
            case Source::INT32:
                return gather<int32_t>(rows, spec_.factor, out);
            case Source::INT64:
                return gather<int64_t>(rows, spec_.factor, out);
            case Source::UINT8:
                return gather<uint8_t>(rows, spec_.factor, out);
            case Source::UINT16:
                return gather<uint16_t>(rows, spec_.factor, out);
            case Source::UINT32:
                return gather<uint32_t>(rows, spec_.factor, out);
            case Source::DECIMAL:
                return gather_decimals(rows, out);
            default:
                throw std::invalid_argument("a column of numbers has none");
        }
    }

    void split() {
        const size_t count = plain_.size() / sizeof(Number);
        char* const out = split_.grow(plain_.size());
        const char* const values = plain_.grow(0) - plain_.size();
        for (size_t byte = 0; byte < sizeof(Number); ++byte) {
            for (size_t i = 0; i < count; ++i) {
                out[byte * count + i] = values[i * sizeof(Number) + byte];
            }
        }
        plain_.clear();
    }

    Encoding encoding_;
    NumberBounds<Compared> bounds_;
    Deltas<Number> deltas_{HEADROOM};
    Bytes plain_{HEADROOM};  // values, or the indexes of a page
    Bytes split_{HEADROOM};
    NumberDictionary<Number> dictionary_;
    Indexes indexes_;
    bool dictionary_used_ = false;
    Bytes finished_;
};

template <typename Column>
std::unique_ptr<Column> made(const ColumnSpec& spec, size_t page_bytes) {
    return std::make_unique<Column>(spec, page_bytes);
}

}  // namespace

std::unique_ptr<Column> number_column(const ColumnSpec& spec, size_t page_bytes) {
    switch (static_cast<Physical>(spec.physical)) {
        case Physical::INT32:
            if (spec.is_signed) return made<NumberColumn<uint32_t, int32_t>>(spec, page_bytes);
            return made<NumberColumn<uint32_t, uint32_t>>(spec, page_bytes);
        case Physical::INT64:
            if (spec.is_signed) return made<NumberColumn<uint64_t, int64_t>>(spec, page_bytes);
            return made<NumberColumn<uint64_t, uint64_t>>(spec, page_bytes);
        case Physical::FLOAT:
            return made<NumberColumn<uint32_t, float>>(spec, page_bytes);
        default:
            return made<NumberColumn<uint64_t, double>>(spec, page_bytes);
    }
}

}  // namespace unloader
