#include "batch.h"

#include <cmath>
#include <cstring>

#include "values.h"

namespace fuzz {
namespace {

using unloader::Kind;

constexpr size_t MOST_ROWS = 12;
constexpr size_t VIEW_BYTES = 16;
constexpr size_t INLINE_BYTES = 12;

size_t width_of(Kind kind, int32_t width) {
    switch (kind) {
        case Kind::INT8:
        case Kind::UINT8: return 1;
        case Kind::INT16:
        case Kind::UINT16: return 2;
        case Kind::INT32:
        case Kind::UINT32:
        case Kind::FLOAT32:
        case Kind::MOMENT: return 4;  // a date32: other moments are tried elsewhere
        case Kind::UUID: return 16;
        case Kind::DECIMAL:
        case Kind::BINARY_FIXED: return static_cast<size_t>(width);
        default: return 8;
    }
}

template <typename Number>
Number as(const uint8_t* bytes) {
    Number value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
}

}  // namespace

// An array with all its memory.
struct Batch::Array {
    ArrowArray arrow{};
    std::vector<Bytes> memory;
    std::vector<const void*> buffers;
    std::shared_ptr<Array> dictionary;

    // Memory that ends where the data end.
    void add(const std::string& data) {
        memory.emplace_back(new uint8_t[data.size()]);
        if (!data.empty()) std::memcpy(memory.back().get(), data.data(), data.size());
        buffers.push_back(memory.back().get());
    }

    void add_offsets(const std::vector<std::string>& values, bool wide) {
        std::string offsets;
        int64_t at = 0;
        for (size_t i = 0; i <= values.size(); ++i) {
            const auto narrow = static_cast<int32_t>(at);
            offsets.append(wide ? reinterpret_cast<const char*>(&at)
                                : reinterpret_cast<const char*>(&narrow), wide ? 8 : 4);
            if (i < values.size()) at += static_cast<int64_t>(values[i].size());
        }
        add(offsets);
    }

    void add_views(const std::vector<std::string>& values) {
        std::string views, data[2];
        for (size_t i = 0; i < values.size(); ++i) {
            const auto& value = values[i];
            char view[VIEW_BYTES] = {};
            const auto size = static_cast<int32_t>(value.size());
            std::memcpy(view, &size, 4);
            if (value.size() <= INLINE_BYTES) {
                std::memcpy(view + 4, value.data(), value.size());
            } else {
                const auto buffer = static_cast<int32_t>(i % 2);
                const auto offset = static_cast<int32_t>(data[i % 2].size());
                std::memcpy(view + 4, value.data(), 4);
                std::memcpy(view + 8, &buffer, 4);
                std::memcpy(view + 12, &offset, 4);
                data[i % 2] += value;
            }
            views.append(view, sizeof view);
        }
        add(views);
        add(data[0]);
        add(data[1]);
        const int64_t sizes[2] = {static_cast<int64_t>(data[0].size()),
                                  static_cast<int64_t>(data[1].size())};
        add({reinterpret_cast<const char*>(sizes), sizeof sizes});
    }

    void finish(size_t length, size_t offset, int64_t null_count) {
        arrow.length = static_cast<int64_t>(length);
        arrow.offset = static_cast<int64_t>(offset);
        arrow.null_count = null_count;
        arrow.n_buffers = static_cast<int64_t>(buffers.size());
        arrow.buffers = buffers.data();
        arrow.dictionary = dictionary ? &dictionary->arrow : nullptr;
    }
};

Batch::Batch(const Dialect& dialect, Input& input)
    : dialect_(dialect), rows_(input.below(MOST_ROWS + 1)), cells_(rows_) {
    offset_ = static_cast<int64_t>(input.below(3));
    for (const auto& facts : dialect.columns) {
        kinds_.push_back(static_cast<uint8_t>(facts.kind));
        columns_.push_back(column(facts, input, kinds_.size() - 1));
        children_.push_back(&columns_.back()->arrow);
    }
}

// Values with their text; every byte of memory is of the input, under a null, too.
std::unique_ptr<Batch::Array> Batch::values(const ColumnFacts& facts, Input& input, size_t count,
                                            std::vector<Cell>& cells) {
    auto array = std::make_unique<Array>();
    array->buffers.push_back(nullptr);
    if (facts.kind == Kind::NONE) {
        cells.assign(count, std::nullopt);
        array->buffers.clear();
        return array;
    }
    if (facts.kind == Kind::BOOLEAN) {
        std::string bits((count + 7) / 8, '\0');
        for (auto& byte : bits) byte = static_cast<char>(input.byte());
        for (size_t i = 0; i < count; ++i) {
            const bool truth = bits[i / 8] >> (i % 8) & 1;
            cells.push_back(Expected{truth ? dialect_.true_text : dialect_.false_text, {}});
        }
        array->add(bits);
        return array;
    }
    if (facts.kind >= Kind::TEXT32 && facts.kind <= Kind::BINARY_VIEW) {
        const bool binary = facts.kind >= Kind::BINARY32;
        std::vector<std::string> texts;
        for (size_t i = 0; i < count; ++i) {
            texts.push_back(binary ? bytes_of(input, 20) : text_of(dialect_, input));
            cells.push_back(Expected{binary ? binary_text(dialect_, texts[i]) : texts[i], {}});
        }
        if (facts.kind == Kind::TEXT_VIEW || facts.kind == Kind::BINARY_VIEW) {
            array->add_views(texts);
            return array;
        }
        array->add_offsets(texts, facts.kind == Kind::TEXT64 || facts.kind == Kind::BINARY64);
        std::string data;
        for (const auto& text : texts) data += text;
        array->add(data);
        return array;
    }
    const size_t width = width_of(facts.kind, facts.width);
    std::string data;
    for (size_t i = 0; i < count; ++i) {
        const auto number = input.number<int64_t>();
        std::string value(width, number < 0 ? '\xFF' : '\0');
        std::memcpy(&value[0], &number, std::min(width, sizeof number));
        const auto* bytes = reinterpret_cast<const uint8_t*>(value.data());
        Expected expected;
        switch (facts.kind) {
            case Kind::INT8: expected.text = std::to_string(as<int8_t>(bytes)); break;
            case Kind::INT16: expected.text = std::to_string(as<int16_t>(bytes)); break;
            case Kind::INT32: expected.text = std::to_string(as<int32_t>(bytes)); break;
            case Kind::INT64: expected.text = std::to_string(as<int64_t>(bytes)); break;
            case Kind::UINT8: expected.text = std::to_string(as<uint8_t>(bytes)); break;
            case Kind::UINT16: expected.text = std::to_string(as<uint16_t>(bytes)); break;
            case Kind::UINT32: expected.text = std::to_string(as<uint32_t>(bytes)); break;
            case Kind::UINT64: expected.text = std::to_string(as<uint64_t>(bytes)); break;
            case Kind::FLOAT32:
                expected.number = static_cast<double>(as<float>(bytes));
                expected.single = true;
                break;
            case Kind::FLOAT64: expected.number = as<double>(bytes); break;
            case Kind::DECIMAL:
                expected.text = decimal_text(bytes, facts.width, facts.scale, dialect_.separator);
                break;
            case Kind::MOMENT: expected.text = date_text(as<int32_t>(bytes)); break;
            case Kind::UUID: expected.text = uuid_text(value); break;
            default: expected.text = binary_text(dialect_, value);
        }
        cells.push_back(expected);
        data += value;
    }
    array->add(data);
    return array;
}

std::unique_ptr<Batch::Array> Batch::column(const ColumnFacts& facts, Input& input, size_t at) {
    // A batch that begins at `offset_` has it in front of the own offset of each column.
    const size_t offset = input.below(18), first = offset + static_cast<size_t>(offset_);
    const size_t count = first + rows_;
    std::vector<Cell> cells;
    std::unique_ptr<Array> array;
    if (facts.index == Kind::NONE) {
        array = values(facts, input, count, cells);
    } else {
        std::vector<Cell> words;
        const size_t size = 1 + input.below(8), skipped = input.below(3);
        std::shared_ptr<Array> dictionary = values(facts, input, skipped + size, words);
        for (size_t i = 0; i < skipped + size; ++i) {
            if (i % 3 == 1) words[i].reset();
        }
        std::string valid((words.size() + 7) / 8, '\0');
        for (size_t i = 0; i < words.size(); ++i) {
            if (words[i]) valid[i / 8] = static_cast<char>(valid[i / 8] | 1 << i % 8);
        }
        dictionary->memory.emplace_back(new uint8_t[valid.size()]);
        std::memcpy(dictionary->memory.back().get(), valid.data(), valid.size());
        dictionary->buffers[0] = dictionary->memory.back().get();
        dictionary->finish(size, skipped, -1);
        array = std::make_unique<Array>();
        array->buffers.push_back(nullptr);
        const size_t width = width_of(facts.index, 0);
        std::string indices;
        for (size_t i = 0; i < count; ++i) {
            const uint64_t index = input.below(size);
            indices.append(reinterpret_cast<const char*>(&index), width);
            cells.push_back(words[skipped + index]);
        }
        array->add(indices);
        array->dictionary = dictionary;
    }
    int64_t null_count = 0;
    const uint8_t nulls = input.byte() % 4;
    if (nulls && !array->buffers.empty()) {
        std::string valid((count + 7) / 8, nulls == 1 ? '\xFF' : '\0');
        for (auto& byte : valid) {
            if (nulls == 3) byte = static_cast<char>(input.byte());
        }
        for (size_t i = 0; i < count; ++i) {
            if (!(valid[i / 8] >> (i % 8) & 1)) cells[i].reset();
        }
        array->memory.emplace_back(new uint8_t[valid.size()]);
        std::memcpy(array->memory.back().get(), valid.data(), valid.size());
        array->buffers[0] = array->memory.back().get();
        null_count = -1;
    }
    array->finish(rows_ + static_cast<size_t>(offset_), offset, null_count);
    for (size_t row = 0; row < rows_; ++row) {
        cells_[row].resize(dialect_.columns.size());
        cells_[row][at] = cells[first + row];
    }
    return array;
}

ArrowArray Batch::array() {
    ++outstanding_;
    ArrowArray array{};
    array.length = static_cast<int64_t>(rows_);
    array.offset = offset_;
    array.n_buffers = 1;
    array.buffers = &no_buffer_;
    array.n_children = static_cast<int64_t>(children_.size());
    array.children = children_.data();
    array.release = release;
    array.private_data = this;
    return array;
}

void Batch::release(ArrowArray* array) {
    --static_cast<Batch*>(array->private_data)->outstanding_;
    array->release = nullptr;
}

}  // namespace fuzz
