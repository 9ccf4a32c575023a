// Columns of text and bytes, and of decimals that are stored as bytes of one length.
#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "bounds.h"
#include "column.h"
#include "deltas.h"
#include "dictionary.h"

namespace unloader {

namespace {

constexpr size_t HEADROOM = 64 * 1024;
constexpr size_t ROOM_OF_LENGTHS = 512 * 1024;  // a quarter of a page; not used, it costs nothing

// Values of rows that are there, behind one another.
struct Values {
    const char* data = nullptr;
    uint32_t sizes[STEP_ROWS];
    size_t count = 0;
    size_t bytes = 0;
};

class ByteColumn : public Column {
public:
    ByteColumn(const ColumnSpec& spec, size_t page_bytes)
        : Column(spec, page_bytes),
          encoding_(static_cast<Encoding>(spec.encoding)),
          fixed_(static_cast<Physical>(spec.physical) == Physical::FIXED),
          bounds_(spec.is_signed),
          dictionary_(fixed_) {
        const bool any = encoding_ == Encoding::PLAIN || encoding_ == Encoding::DICTIONARY;
        const auto source = static_cast<Source>(spec.source);
        const bool texts = source == Source::TEXT32 || source == Source::TEXT64;
        const bool decimal = source == Source::DECIMAL && spec.width > 0 && spec.width <= 16;
        const bool fixed = decimal || (source == Source::FIXED && spec.width > 0);
        const bool prefixes = encoding_ == Encoding::PREFIXES && !fixed_;
        if (!(any || prefixes) || !(fixed_ ? fixed : texts)) {
            throw std::invalid_argument("bytes have not this encoding");
        }
    }

protected:
    Taken put(const Rows& rows) override {
        Values values;
        const size_t room = page_bytes_ > held_ ? page_bytes_ - held_ : 0;
        size_t taken = 0;
        switch (static_cast<Source>(spec_.source)) {
            case Source::TEXT32:
                taken = gather_texts<int32_t>(rows, room, values);
                break;
            case Source::TEXT64:
                taken = gather_texts<int64_t>(rows, room, values);
                break;
            case Source::DECIMAL:
                taken = gather_decimals(rows, room, values);
                break;
            default:
                taken = gather_fixed(rows, room, values);
        }
        held_ += values.bytes;
        if (spec_.bounds) bounds_.put(values.data, values.sizes, values.count);
        encode(values);
        const bool full = held_ >= page_bytes_;
        // The text behind the numbers of a dictionary is in no page.
        if (full && encoding_ == Encoding::DICTIONARY) held_ = 0;
        return {taken, full};
    }

    size_t size() override {
        return encoding_ == Encoding::DICTIONARY ? indexes_.size() : held_ + lengths_.size();
    }

    Bytes& end_values(Page& page) override {
        page.encoding = encoding_;
        page.bounded = bounds_.finish(page.least, page.greatest);
        held_ = 0;
        last_.clear();
        switch (encoding_) {
            case Encoding::DICTIONARY:
                dictionary_used_ = true;
                indexes_.finish(bytes_, dictionary_.entries());
                break;
            case Encoding::PREFIXES:
                put_in_front(lengths_.finish());
                put_in_front(prefixes_.finish());
                break;
            default:
                break;
        }
        return bytes_;
    }

    Bytes* end_dictionary(int64_t& entries) override {
        encoding_ = static_cast<Encoding>(spec_.encoding);
        if (!dictionary_used_) return nullptr;
        dictionary_used_ = false;
        entries = static_cast<int64_t>(dictionary_.entries());
        Bytes& found = dictionary_.bytes();
        finished_.clear();
        finished_.append(found.grow(0) - found.size(), found.size());
        dictionary_.clear();
        return &finished_;
    }

    size_t dictionary_size() override {
        return encoding_ == Encoding::DICTIONARY ? dictionary_.bytes().size() : 0;
    }
    void give_up_dictionary() override { encoding_ = Encoding::PLAIN; }

private:
    template <typename Offset>
    size_t gather_texts(const Rows& rows, size_t room, Values& values) {
        const void* const offsets = rows.array.buffers[1];
        const auto* const data = static_cast<const char*>(rows.array.buffers[2]);
        auto start = value_at<Offset>(offsets, rows.first);
        const auto begin = start;
        auto expected = start;
        bool together = true;
        size_t row = 0;
        while (row < rows.count && (values.bytes < room || row == 0)) {
            const auto end = value_at<Offset>(offsets, rows.first + static_cast<int64_t>(row) + 1);
            if (end < start || end - start > std::numeric_limits<int32_t>::max()) {
                throw Refused("a value has no possible length");
            }
            if (rows.there(row)) {
                const auto size = static_cast<uint32_t>(end - start);
                if (size) {
                    if (!values.bytes) expected = start;
                    together &= start == expected;
                    expected = end;
                }
                values.sizes[values.count++] = size;
                values.bytes += size;
            }
            start = end;
            ++row;
        }
        if (values.bytes && !data) throw std::invalid_argument("text has no bytes");
        if (!values.bytes) {
            values.data = "";
        } else if (together) {
            values.data = data + (expected - static_cast<Offset>(values.bytes));
        } else {
            // Something lies under a NULL.
            scratch_.clear();
            start = begin;
            for (size_t i = 0; i < row; ++i) {
                const auto end = value_at<Offset>(offsets, rows.first + static_cast<int64_t>(i) + 1);
                if (rows.there(i)) scratch_.append(data + start, static_cast<size_t>(end - start));
                start = end;
            }
            values.data = scratch_.data();
        }
        return row;
    }

    size_t gather_fixed(const Rows& rows, size_t room, Values& values) {
        const auto width = static_cast<size_t>(spec_.width);
        const auto* const data = static_cast<const char*>(rows.array.buffers[1]);
        scratch_.clear();
        scratch_.grow(0);
        size_t row = 0;
        while (row < rows.count && (values.bytes < room || row == 0)) {
            if (rows.there(row)) {
                const auto at = static_cast<size_t>(rows.first) + row;
                scratch_.append(data + at * width, width);
                values.sizes[values.count++] = static_cast<uint32_t>(width);
                values.bytes += width;
            }
            ++row;
        }
        values.data = scratch_.data();
        return row;
    }

    // The highest byte first, as few as the type's digits take.
    size_t gather_decimals(const Rows& rows, size_t room, Values& values) {
        const auto width = static_cast<size_t>(spec_.width);
        scratch_.clear();
        char* out = scratch_.grow(rows.count * width);
        bool fits = true;
        size_t row = 0;
        for (; row < rows.count && (values.bytes < room || row == 0); ++row) {
            if (!rows.there(row)) continue;
            const int64_t at = 2 * (rows.first + static_cast<int64_t>(row));
            const auto low = value_at<uint64_t>(rows.array.buffers[1], at);
            const auto high = value_at<uint64_t>(rows.array.buffers[1], at + 1);
            const auto value = static_cast<__int128>(static_cast<unsigned __int128>(high) << 64 | low);
            const auto rest = value >> (8 * width - 1);
            fits &= rest == 0 || rest == -1;
            const uint64_t reversed[2] = {__builtin_bswap64(high), __builtin_bswap64(low)};
            std::memcpy(out, reinterpret_cast<const char*>(reversed) + 16 - width, width);
            out += width;
            values.sizes[values.count++] = static_cast<uint32_t>(width);
            values.bytes += width;
        }
        if (!fits) throw Refused("a decimal has more digits than its type");
        values.data = scratch_.data();
        return row;
    }

    void encode(const Values& values) {
        const char* data = values.data;
        switch (encoding_) {
            case Encoding::PREFIXES:
                encode_prefixes(values);
                break;
            case Encoding::DICTIONARY:
                for (size_t i = 0; i < values.count; data += values.sizes[i++]) {
                    indexes_.put(dictionary_.find(data, values.sizes[i]));
                }
                break;
            default:
                if (fixed_) {
                    bytes_.append(data, values.bytes);
                    break;
                }
                for (size_t i = 0; i < values.count; data += values.sizes[i++]) {
                    bytes_.append(&values.sizes[i], 4);
                    bytes_.append(data, values.sizes[i]);
                }
        }
    }

    void encode_prefixes(const Values& values) {
        uint32_t prefixes[STEP_ROWS], rests[STEP_ROWS];
        const char* data = values.data;
        const char* last = last_.data();
        auto last_size = static_cast<uint32_t>(last_.size());
        char* out = bytes_.grow(values.bytes);
        for (size_t i = 0; i < values.count; ++i) {
            const uint32_t size = values.sizes[i];
            const uint32_t most = std::min(size, last_size);
            uint32_t same = 0;
            while (same < most && data[same] == last[same]) ++same;
            prefixes[i] = same;
            rests[i] = size - same;
            std::memcpy(out, data + same, rests[i]);
            out += rests[i];
            last = data;
            last_size = size;
            data += size;
        }
        bytes_.end_at(out);
        prefixes_.put(prefixes, values.count);
        lengths_.put(rests, values.count);
        if (values.count) last_ = std::string(last, last_size);
    }

    void put_in_front(Bytes& front) {
        const size_t size = front.size();
        std::memcpy(bytes_.prepend(size), front.data(), size);
        front.clear();
    }

    Encoding encoding_;
    bool fixed_;
    size_t held_ = 0;  // bytes of values in the page
    ByteBounds bounds_;
    Deltas<uint32_t> lengths_{64};
    Deltas<uint32_t> prefixes_{64};
    Bytes bytes_{HEADROOM + ROOM_OF_LENGTHS};
    ByteDictionary dictionary_;
    Indexes indexes_;
    bool dictionary_used_ = false;
    Bytes finished_;
    Bytes scratch_;
    std::string last_;
};

}  // namespace

std::unique_ptr<Column> byte_column(const ColumnSpec& spec, size_t page_bytes) {
    return std::make_unique<ByteColumn>(spec, page_bytes);
}

}  // namespace unloader
