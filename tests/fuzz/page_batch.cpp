#include "page_batch.h"

#include <algorithm>
#include <cstring>

namespace fuzz {
namespace {

using unloader::ColumnSpec;
using unloader::Encoding;
using unloader::Physical;
using unloader::Source;

constexpr size_t MOST_ROWS = 2600;  // pages are looked at after every 1024
constexpr size_t MOST_WIDTH = 40;

struct Form {
    Source source;
    Physical physical;
    bool is_signed;
    int32_t factor;
};

constexpr Form FORMS[] = {
    {Source::BOOLEAN, Physical::BOOLEAN, false, 1},
    {Source::INT8, Physical::INT32, true, 1},
    {Source::INT16, Physical::INT32, true, 1},
    {Source::INT32, Physical::INT32, true, 1},
    {Source::INT32, Physical::INT32, true, 1000},
    {Source::INT64, Physical::INT64, true, 1},
    {Source::INT64, Physical::INT64, true, 1000},
    {Source::UINT8, Physical::INT32, false, 1},
    {Source::UINT16, Physical::INT32, false, 1},
    {Source::UINT32, Physical::INT32, false, 1},
    {Source::INT64, Physical::INT64, false, 1},
    {Source::INT32, Physical::FLOAT, true, 1},
    {Source::INT64, Physical::DOUBLE, true, 1},
    {Source::DECIMAL, Physical::INT32, true, 1},
    {Source::DECIMAL, Physical::INT64, true, 1},
    {Source::DECIMAL, Physical::FIXED, true, 1},
    {Source::TEXT32, Physical::BYTE_ARRAY, false, 1},
    {Source::TEXT64, Physical::BYTE_ARRAY, false, 1},
    {Source::FIXED, Physical::FIXED, false, 1},
};

std::vector<Encoding> encodings_of(Physical physical) {
    switch (physical) {
        case Physical::BOOLEAN: return {Encoding::PLAIN};
        case Physical::INT32:
        case Physical::INT64:
            return {Encoding::PLAIN, Encoding::DICTIONARY, Encoding::DELTAS, Encoding::SPLIT};
        case Physical::FLOAT:
        case Physical::DOUBLE: return {Encoding::PLAIN, Encoding::DICTIONARY, Encoding::SPLIT};
        case Physical::BYTE_ARRAY:
            return {Encoding::PLAIN, Encoding::DICTIONARY, Encoding::PREFIXES};
        case Physical::FIXED: return {Encoding::PLAIN, Encoding::DICTIONARY};
    }
    return {};
}

bool is_text(const ColumnSpec& spec) {
    const auto source = static_cast<Source>(spec.source);
    return source == Source::TEXT32 || source == Source::TEXT64;
}

// Bytes of a value in Arrow; 0: it has no fixed number.
size_t source_bytes(const ColumnSpec& spec) {
    switch (static_cast<Source>(spec.source)) {
        case Source::INT8:
        case Source::UINT8: return 1;
        case Source::INT16:
        case Source::UINT16: return 2;
        case Source::INT32:
        case Source::UINT32: return 4;
        case Source::INT64: return 8;
        case Source::DECIMAL: return 16;
        case Source::FIXED: return static_cast<size_t>(spec.width);
        default: return 0;
    }
}

__int128 number_in(const std::string& bytes, bool is_signed) {
    unsigned __int128 number = is_signed && bytes.back() & 0x80 ? ~static_cast<unsigned __int128>(0) : 0;
    for (auto byte = bytes.rbegin(); byte != bytes.rend(); ++byte) {
        number = number << 8 | static_cast<uint8_t>(*byte);
    }
    return static_cast<__int128>(number);
}

// Returns a whole number's lowest bytes; nothing where a signed one of so many cannot hold it.
Stored little_endian(__int128 number, size_t size, bool is_signed) {
    std::string bytes;
    for (size_t at = 0; at < size; ++at) bytes += static_cast<char>(number >> (8 * at));
    if (number_in(bytes, is_signed) != number) return {};
    return bytes;
}

// Returns what Parquet must have of a value's bytes in Arrow; nothing where it cannot.
Stored stored_of(const ColumnSpec& spec, const std::string& bytes) {
    const auto source = static_cast<Source>(spec.source);
    if (source == Source::BOOLEAN || source == Source::FIXED || is_text(spec)) return bytes;
    const __int128 number = number_in(bytes, spec.is_signed) * spec.factor;
    switch (static_cast<Physical>(spec.physical)) {
        case Physical::INT32:
        case Physical::FLOAT: return little_endian(number, 4, spec.is_signed);
        case Physical::INT64:
        case Physical::DOUBLE: return little_endian(number, 8, spec.is_signed);
        default: {
            Stored turned = little_endian(number, static_cast<size_t>(spec.width), true);
            if (turned) std::reverse(turned->begin(), turned->end());
            return turned;
        }
    }
}

// Values of a column by row: as they are, one after the other, or no two of them alike.
class Values {
public:
    Values(const ColumnSpec& spec, Input& input)
        : spec_(spec), way_(input.below(4)), length_(1 + input.below(300)), state_(input.byte()) {
        const size_t count = 1 + input.below(6);
        for (size_t i = 0; i < count; ++i) few_.push_back(value(input));
    }

    std::string next(size_t row) {
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        const auto random = static_cast<size_t>(state_ >> 33);
        const bool picked = way_ & 1;
        std::string bytes = few_[(picked ? random : row / length_) % few_.size()];
        if (way_ < 2 || static_cast<Source>(spec_.source) == Source::BOOLEAN) return bytes;
        // The number of the row in the lowest bytes; of a text it stands behind the rest.
        const size_t fixed = source_bytes(spec_);
        for (size_t at = 0; at < 3; ++at) {
            const auto byte = static_cast<char>(row >> (8 * at));
            if (!fixed) bytes += byte;
            if (at < fixed) bytes[at] = static_cast<char>(bytes[at] ^ byte);
        }
        return bytes;
    }

private:
    std::string value(Input& input) const {
        if (static_cast<Source>(spec_.source) == Source::BOOLEAN) {
            return std::string(1, static_cast<char>(input.byte() & 1));
        }
        if (is_text(spec_)) {
            std::string text;
            for (size_t left = input.below(9); left; --left) text += static_cast<char>(input.byte());
            if (const uint8_t more = input.byte(); more >= 0xE0) text.append(more * 4u, 'x');
            return text;
        }
        const size_t size = source_bytes(spec_);
        std::string bytes(size, '\0');
        if (static_cast<Source>(spec_.source) == Source::FIXED) {
            for (char& each : bytes) each = static_cast<char>(input.byte());
            return bytes;
        }
        const auto low = input.number<int64_t>();
        const int64_t high = size == 16 && input.byte() & 1 ? input.number<int64_t>() : low >> 63;
        std::memcpy(bytes.data(), &low, std::min<size_t>(size, 8));
        if (size == 16) std::memcpy(bytes.data() + 8, &high, 8);
        return bytes;
    }

    const ColumnSpec& spec_;
    size_t way_;
    size_t length_;
    uint64_t state_;
    std::vector<std::string> few_;
};

std::unique_ptr<char[]> allocated(const std::string& bytes) {
    std::unique_ptr<char[]> memory(new char[bytes.size()]);
    std::copy(bytes.begin(), bytes.end(), memory.get());
    return memory;
}

template <typename Offset>
std::string offsets_of(const std::vector<std::string>& values) {
    Offset end = 0;
    std::string bytes(reinterpret_cast<const char*>(&end), sizeof end);
    for (const auto& value : values) {
        end += static_cast<Offset>(value.size());
        bytes.append(reinterpret_cast<const char*>(&end), sizeof end);
    }
    return bytes;
}

std::string bits_of(const std::vector<bool>& set) {
    std::string bytes((set.size() + 7) / 8, '\0');
    for (size_t at = 0; at < set.size(); ++at) {
        if (set[at]) bytes[at / 8] = static_cast<char>(bytes[at / 8] | 1 << at % 8);
    }
    return bytes;
}

std::string joined(const std::vector<std::string>& values) {
    std::string bytes;
    for (const auto& value : values) bytes += value;
    return bytes;
}

}  // namespace

ColumnSpec column_spec(Input& input, bool bounds) {
    const Form& form = FORMS[input.below(sizeof FORMS / sizeof *FORMS)];
    const auto encodings = encodings_of(form.physical);
    const bool fixed = form.physical == Physical::FIXED;
    const size_t most = form.source == Source::DECIMAL ? 16 : MOST_WIDTH;
    ColumnSpec spec{};
    spec.source = static_cast<int32_t>(form.source);
    spec.physical = static_cast<int32_t>(form.physical);
    spec.encoding = static_cast<int32_t>(encodings[input.below(encodings.size())]);
    spec.width = fixed ? static_cast<int32_t>(1 + input.below(most)) : 0;
    spec.nullable = input.byte() & 1;
    spec.is_signed = form.is_signed;
    spec.bounds = bounds;
    spec.factor = form.factor;
    return spec;
}

struct PageBatch::Child {
    int64_t length;
    int64_t offset;
    int64_t null_count;
    std::vector<std::unique_ptr<char[]>> memory;
    std::vector<const void*> buffers;
    ArrowArray array{};
};

PageBatch::PageBatch(const std::vector<ColumnSpec>& specs, Input& input)
    : rows_(input.byte() & 1 ? input.below(40) : input.below(MOST_ROWS)), behind_(input.below(10)) {
    for (size_t i = 0; i < specs.size(); ++i) {
        values_.emplace_back();
        columns_.push_back(child(specs[i], input));
    }
}

std::unique_ptr<PageBatch::Child> PageBatch::child(const ColumnSpec& spec, Input& input) {
    auto made = std::make_unique<Child>();
    const size_t offset = input.below(10);
    const size_t every = input.below(12);  // 0: no bitmap; 1: one without a NULL
    const bool empty = input.byte() & 1;   // whether nothing lies under a NULL
    const size_t count = offset + behind_ + rows_;
    Values values(spec, input);
    std::vector<std::string> all;
    std::vector<bool> there;
    for (size_t row = 0; row < count; ++row) {
        const bool is_null = every > 1 && (row / (every & 1 ? 100 : 1)) % every == 0;
        std::string bytes = values.next(row);
        if (is_null && empty && is_text(spec)) bytes.clear();
        if (row >= offset + behind_) {
            Stored stored;
            if (!is_null) stored = stored_of(spec, bytes);
            if ((is_null ? !spec.nullable : !stored) && !refused_) refused_ = values_.size() - 1;
            values_.back().push_back(std::move(stored));
        }
        all.push_back(std::move(bytes));
        there.push_back(!is_null);
    }
    made->length = static_cast<int64_t>(behind_ + rows_);
    made->offset = static_cast<int64_t>(offset);
    made->null_count = every < 2 && !empty ? 0 : -1;
    std::vector<std::string> buffers;
    if (static_cast<Source>(spec.source) == Source::BOOLEAN) {
        std::vector<bool> set;
        for (const auto& bytes : all) set.push_back(bytes[0]);
        buffers.push_back(bits_of(set));
    } else {
        if (static_cast<Source>(spec.source) == Source::TEXT32) buffers.push_back(offsets_of<int32_t>(all));
        if (static_cast<Source>(spec.source) == Source::TEXT64) buffers.push_back(offsets_of<int64_t>(all));
        buffers.push_back(joined(all));
    }
    made->memory.push_back(every ? allocated(bits_of(there)) : nullptr);
    for (const auto& buffer : buffers) made->memory.push_back(allocated(buffer));
    for (const auto& memory : made->memory) made->buffers.push_back(memory.get());
    return made;
}

ArrowArray PageBatch::array(size_t first, size_t rows) {
    children_.clear();
    for (const auto& column : columns_) {
        column->array = {column->length,
                         column->null_count,
                         column->offset,
                         static_cast<int64_t>(column->buffers.size()),
                         0,
                         column->buffers.data(),
                         nullptr,
                         nullptr,
                         nullptr,
                         nullptr};
        children_.push_back(&column->array);
    }
    ++outstanding_;
    return {static_cast<int64_t>(rows),
            0,
            static_cast<int64_t>(behind_ + first),
            1,
            static_cast<int64_t>(children_.size()),
            &no_buffer_,
            children_.data(),
            nullptr,
            release,
            this};
}

void PageBatch::release(ArrowArray* array) {
    --static_cast<PageBatch*>(array->private_data)->outstanding_;
    array->release = nullptr;
}

}  // namespace fuzz
