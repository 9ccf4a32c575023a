#include "records.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "digits.h"

namespace unloader {
namespace {

// What is read and written for so many rows stays in a core's own cache (measured: 64 to 1024 rows
// are as quick).
constexpr int64_t BLOCK_ROWS = 256;

std::string encoded(const std::string& text, const Charset* charset) {
    if (!charset || text.empty()) return text;
    std::vector<char> bytes(charset->bound(text.size()));
    const char* end = charset->write(bytes.data(), text.data(), text.size());
    if (!end) throw std::invalid_argument("the character set has not the marks of the format");
    return {bytes.data(), static_cast<size_t>(end - bytes.data())};
}

}  // namespace

RecordStyle::RecordStyle(const uint8_t* description, size_t size)
    : format(Format::read(description, size)) {
    if (!format) throw std::invalid_argument("the description of the format is malformed");
    enclosing = std::make_unique<Enclosing>(*format);
    columns.reserve(format->columns.size());
    for (const auto& column : format->columns) columns.emplace_back(column, *format);
    if (!format->charset.empty()) {
        charset = Charset::make(reinterpret_cast<const uint8_t*>(format->charset.data()),
                                format->charset.size());
        if (!charset) throw std::invalid_argument("the description of the charset is malformed");
    }
    prefix_bytes = encoded(std::string(format->length_digits, '0'), charset.get()).size();
    if (format->fixed.empty()) return;
    blank = encoded(" ", charset.get());
    fixed_end = encoded(format->end, charset.get());
    fixed_bytes = fixed_end.size();
    for (const auto& field : format->fixed) fixed_bytes += field.width;
}

Records::Records(const RecordStyle& style, ArrowArray* array, const uint8_t* kinds)
    : style_(style), array_(*array) {
    const size_t count = style.columns.size();
    if (array_.n_children != static_cast<int64_t>(count)) {
        throw std::invalid_argument("a batch has not the columns of its schema");
    }
    columns_.reserve(count);
    cells_.reserve(count);
    fixed_cells_.reserve(count);
    for (size_t i = 0; i < count; ++i) {
        const auto kind = static_cast<Kind>(kinds[i]);
        columns_.emplace_back(style.columns[i], kind, *array_.children[i], array_.offset);
        if (style.fixed_bytes) {
            fixed_cells_.emplace_back(columns_.back(), style.format->fixed[i], style.charset.get(),
                                      style.blank);
            continue;
        }
        const bool last = i + 1 == count;
        cells_.emplace_back(columns_.back(), *style.enclosing,
                            last ? style.format->end : style.format->delimiter);
    }
    if (style.charset) prefix_.resize(style.charset->bound(style.format->length_digits));
    // Only now, so that an array is not released twice if it is not fit.
    array->release = nullptr;
}

Records::~Records() {
    if (array_.release) array_.release(&array_);
}

Status Records::fill(char* out, size_t room, int64_t most_rows, Progress& progress) {
    char* const start = out;
    const int64_t until = most_rows < array_.length - row_ ? row_ + most_rows : array_.length;
    Status status = Status::DONE;
    while (row_ < until && status == Status::DONE) {
        size_t needed = 0;
        const size_t left = room - static_cast<size_t>(out - start);
        const int64_t count = rows_that_fit(until - row_, left, needed);
        if (!count) {
            progress.needed = needed;
            status = Status::FULL;
            break;
        }
        out = write_rows(out, count, status, progress);
    }
    if (status == Status::DONE && row_ < array_.length) status = Status::FULL;
    progress.rows = row_;
    progress.bytes = static_cast<uint64_t>(out - start);
    return status;
}

// Returns how many rows to write next, 0 if not even one fits for sure.
int64_t Records::rows_that_fit(int64_t most_rows, size_t room, size_t& needed) {
    if (row_ >= looked_until_) {
        const int64_t count = std::min(BLOCK_ROWS, array_.length - row_);
        for (auto& cells : cells_) cells.look_into(row_, count);
        looked_until_ = row_ + count;
    }
    int64_t count = std::min(looked_until_ - row_, most_rows);
    while ((needed = bound(count)) > room) {
        if (count == 1) return 0;
        count /= 2;
    }
    return count;
}

size_t Records::text_bound(int64_t count) const {
    size_t total = SLACK;
    for (const auto& cells : cells_) total += cells.bound(row_, count);
    return total;
}

size_t Records::bound(int64_t count) const {
    const auto rows = static_cast<size_t>(count);
    if (style_.fixed_bytes) return rows * style_.fixed_bytes;
    const size_t text = text_bound(count);
    const size_t prefixes = rows * style_.prefix_bytes;
    if (!style_.charset) return prefixes + text;
    // Each record is a text of its own to the character set.
    return prefixes + style_.charset->bound(text) + rows * style_.charset->bound(0);
}

char* Records::write_rows(char* out, int64_t count, Status& status, Progress& progress) {
    if (style_.fixed_bytes) return write_fixed(out, count, status, progress);
    const auto& charset = style_.charset;
    if (charset) text_.resize(std::max(text_.size(), text_bound(count)));
    for (const int64_t end = row_ + count; row_ < end; ++row_) {
        char* const record = out + style_.prefix_bytes;
        char* const begin = charset ? text_.data() : record;
        char* behind = write_text(begin, status, progress);
        if (behind && charset) {
            behind = charset->write(record, begin, static_cast<size_t>(behind - begin));
        }
        if (behind) behind = finish(out, behind);
        if (!behind) {
            if (status == Status::DONE) status = Status::REFUSED;
            return out;
        }
        out = behind;
    }
    return out;
}

char* Records::write_fixed(char* out, int64_t count, Status& status, Progress& progress) {
    const std::string& line_end = style_.fixed_end;
    for (const int64_t end = row_ + count; row_ < end; ++row_) {
        char* behind = write_fields(out, status, progress);
        if (!behind) break;
        std::memcpy(behind, line_end.data(), line_end.size());
        out = behind + line_end.size();
    }
    return out;
}

char* Records::write_fields(char* out, Status& status, Progress& progress) {
    for (auto& cells : fixed_cells_) {
        const Outcome outcome = cells.write(out, row_);
        if (outcome == Outcome::WRITTEN) continue;
        status = outcome == Outcome::REFUSED ? Status::REFUSED : Status::UNDECIDED;
        progress.column = &cells - fixed_cells_.data();
        return nullptr;
    }
    return out;
}

inline char* Records::write_text(char* out, Status& status, Progress& progress) {
    for (auto& cells : cells_) {
        const Outcome outcome = cells.write(out, row_);
        if (outcome == Outcome::WRITTEN) continue;
        status = outcome == Outcome::REFUSED ? Status::REFUSED : Status::UNDECIDED;
        progress.column = &cells - cells_.data();
        return nullptr;
    }
    return out;
}

// Puts the length in front of a record; nullptr: there are too few digits for it.
inline char* Records::finish(char* prefix, char* end) {
    const auto digits = static_cast<int>(style_.format->length_digits);
    if (!digits) return end;
    const auto length = static_cast<uint64_t>(end - prefix) - style_.prefix_bytes;
    if (digits < 20 && length >= POWERS_OF_TEN[digits]) return nullptr;
    if (!style_.charset) {
        write_padded(prefix, length, digits);
        return end;
    }
    char text[20];
    write_padded(text, length, digits);
    // Not where it belongs: what is written may reach into the record.
    style_.charset->write(prefix_.data(), text, static_cast<size_t>(digits));
    std::memcpy(prefix, prefix_.data(), style_.prefix_bytes);
    return end;
}

}  // namespace unloader
