// Columns of truth values: a bit each.
#include <stdexcept>

#include "bounds.h"
#include "column.h"

namespace unloader {

namespace {

class BooleanColumn : public Column {
public:
    BooleanColumn(const ColumnSpec& spec, size_t page_bytes) : Column(spec, page_bytes) {
        if (static_cast<Encoding>(spec.encoding) != Encoding::PLAIN ||
            static_cast<Source>(spec.source) != Source::BOOLEAN) {
            throw std::invalid_argument("truth values have not this encoding");
        }
    }

protected:
    Taken put(const Rows& rows) override {
        const auto* bits = static_cast<const uint8_t*>(rows.array.buffers[1]);
        for (size_t row = 0; row < rows.count; ++row) {
            if (!rows.there(row)) continue;
            const uint8_t bit = bit_at(bits, rows.first + static_cast<int64_t>(row));
            if (spec_.bounds) bounds_.put(&bit, 1);
            held_ = static_cast<uint8_t>(held_ | bit << filled_);
            if (++filled_ == 8) end_byte();
        }
        return {rows.count, false};
    }

    size_t size() override { return plain_.size(); }

    Bytes& end_values(Page& page) override {
        if (filled_) end_byte();
        page.encoding = Encoding::PLAIN;
        page.bounded = bounds_.finish(page.least, page.greatest);
        return plain_;
    }

    Bytes* end_dictionary(int64_t&) override { return nullptr; }

private:
    void end_byte() {
        plain_.append(&held_, 1);
        held_ = 0;
        filled_ = 0;
    }

    NumberBounds<uint8_t> bounds_;
    Bytes plain_;
    uint8_t held_ = 0;
    int filled_ = 0;
};

}  // namespace

std::unique_ptr<Column> boolean_column(const ColumnSpec& spec, size_t page_bytes) {
    return std::make_unique<BooleanColumn>(spec, page_bytes);
}

}  // namespace unloader
