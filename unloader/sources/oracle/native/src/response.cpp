#include "response.h"

#include <cstring>

#include "reader.h"

namespace unloader::oracle {

namespace {

// Packets.
constexpr size_t HEADER = 8;
constexpr size_t DATA_HEADER = HEADER + 2;
constexpr size_t MOST_PACKET = 4 * 1024 * 1024;  // twice the largest that can be agreed on
constexpr uint8_t DATA = 6;
constexpr uint16_t END_OF_RESPONSE = 0x2000;

// Messages.
constexpr uint8_t ERROR = 4;
constexpr uint8_t ROW_HEADER = 6;
constexpr uint8_t ROW_DATA = 7;
constexpr uint8_t BIT_VECTOR = 0x15;

constexpr uint8_t LONGEST_SHORT = 252;
constexpr size_t MOST_TAIL = 256 * 1024;

uint32_t packet_size(const uint8_t* header) {
    return uint32_t{header[0]} << 24 | uint32_t{header[1]} << 16 | uint32_t{header[2]} << 8 | header[3];
}

}  // namespace

Response::Response(const Description* descriptions, size_t count) {
    columns_.reserve(count);
    for (size_t index = 0; index < count; index++) columns_.emplace_back(descriptions[index]);
    vector_.resize((count + 7) / 8);
}

void Response::begin(int64_t most_rows) {
    for (Column& column : columns_) {
        column.clear();
        column.reserve(most_rows);
    }
    raw_.clear();
    payload_.clear();
    output_.clear();
    tail_.clear();
    at_ = column_ = 0;
    state_ = State::MESSAGES;
    refusal_ = Refusal::NONE;
    has_vector_ = has_header_ = tail_read_ = false;
    most_rows_ = most_rows;
    rows_ = error_ = 0;
    counted_ = refused_column_ = -1;
}

Refusal Response::feed(const uint8_t* bytes, size_t size) {
    const uint8_t* end = bytes + size;
    while (bytes < end && refusal_ == Refusal::NONE) {
        const auto left = static_cast<size_t>(end - bytes);
        if (raw_.empty() && left >= HEADER) {
            // Most packets are whole, and are decoded where they are.
            const size_t whole = packet_size(bytes);
            if (whole < HEADER || whole > MOST_PACKET) return refuse_packet();
            if (left >= whole) {
                packet(bytes, whole);
                bytes += whole;
                continue;
            }
        }
        const size_t wanted = raw_.size() < HEADER ? HEADER : packet_size(raw_.data());
        const size_t missing = wanted - raw_.size();
        const size_t count = missing < left ? missing : left;
        raw_.insert(raw_.end(), bytes, bytes + count);
        bytes += count;
        if (raw_.size() < HEADER) continue;
        const size_t whole = packet_size(raw_.data());
        if (whole < HEADER || whole > MOST_PACKET) return refuse_packet();
        if (raw_.size() == whole) {
            packet(raw_.data(), whole);
            raw_.clear();
        }
    }
    return refusal_;
}

Refusal Response::refuse_packet() {
    refuse(Refusal::PACKET);
    return refusal_;
}

Refusal Response::packet(const uint8_t* bytes, size_t size) {
    if (bytes[4] != DATA) {
        // A marker says that the server broke off: the driver knows what to do.
        output_.insert(output_.end(), bytes, bytes + size);
        state_ = State::THROUGH;
        return refusal_;
    }
    if (state_ == State::THROUGH) {
        output_.insert(output_.end(), bytes, bytes + size);
        return refusal_;
    }
    if (size < DATA_HEADER) return refuse_packet();
    const uint8_t* content = bytes + DATA_HEADER;
    const size_t length = size - DATA_HEADER;
    const uint16_t flags = static_cast<uint16_t>(bytes[8] << 8 | bytes[9]);
    if (state_ == State::TAIL) {
        output_.insert(output_.end(), bytes, bytes + size);
        if (tail_.size() < MOST_TAIL) tail_.insert(tail_.end(), content, content + length);
        read_tail();
        return refusal_;
    }
    payload_.insert(payload_.end(), content, content + length);
    if (rows() != Refusal::NONE) return refusal_;
    if (state_ == State::TAIL) {
        // One packet has what is not rows, as if the server had sent nothing else.
        const size_t rest = payload_.size() - at_;
        const size_t whole = DATA_HEADER + rest;
        const size_t start = output_.size();
        output_.insert(output_.end(), bytes, bytes + DATA_HEADER);
        for (int index = 0; index < 4; index++) {
            output_[start + static_cast<size_t>(index)] = static_cast<uint8_t>(whole >> (24 - 8 * index));
        }
        output_.insert(output_.end(), payload_.begin() + static_cast<ptrdiff_t>(at_), payload_.end());
        tail_.assign(payload_.begin() + static_cast<ptrdiff_t>(at_), payload_.end());
        payload_.clear();
        at_ = 0;
        read_tail();
    } else {
        if (flags & END_OF_RESPONSE) {
            refuse(Refusal::ENDED);
            return refusal_;
        }
        // What is decoded goes; a value that is cut is short.
        payload_.erase(payload_.begin(), payload_.begin() + static_cast<ptrdiff_t>(at_));
        at_ = 0;
    }
    return refusal_;
}

Refusal Response::rows() {
    Step step = Step::DONE;
    while (step == Step::DONE && state_ != State::TAIL) {
        step = state_ == State::ROW ? row() : message();
    }
    return refusal_;
}

Response::Step Response::message() {
    if (at_ == payload_.size()) return Step::MORE;
    switch (payload_[at_]) {
        case ROW_HEADER: return header();
        case BIT_VECTOR: return vector_message();
        case ROW_DATA:
            if (!has_header_) return refuse(Refusal::MESSAGE);
            if (rows_ == most_rows_) return refuse(Refusal::ROWS);
            at_++;
            column_ = 0;
            state_ = State::ROW;
            return Step::DONE;
        case ERROR:
            if (has_vector_) return refuse(Refusal::VECTOR);
            state_ = State::TAIL;
            return Step::DONE;
        default: return refuse(Refusal::MESSAGE);
    }
}

Response::Step Response::header() {
    if (has_header_) return refuse(Refusal::MESSAGE);
    const uint8_t* start = payload_.data() + at_;
    Reader reader(start + 1, payload_.data() + payload_.size());
    reader.byte();      // flags
    const auto announced = static_cast<uint32_t>(reader.number(2));
    reader.number(4);   // iteration
    reader.number(4);   // rows asked for
    reader.number(2);   // size of a buffer
    const uint64_t size = reader.number(4);
    const uint8_t* bits = nullptr;
    if (reader.ok() && size) {
        if (size != vector_.size()) return refuse(Refusal::VECTOR);
        if (reader.byte() != size && reader.ok()) return refuse(Refusal::VECTOR);
        bits = reader.skip(size);
    }
    if (reader.ok()) reader.skip_sized();
    if (reader.wrong()) return refuse(Refusal::MESSAGE);
    if (reader.short_of_bytes()) return Step::MORE;
    has_header_ = true;
    at_ += static_cast<size_t>(reader.next() - start);
    return bits == nullptr ? Step::DONE : set_vector(bits, announced);
}

Response::Step Response::vector_message() {
    const uint8_t* start = payload_.data() + at_;
    Reader reader(start + 1, payload_.data() + payload_.size());
    const auto announced = static_cast<uint32_t>(reader.number(2));
    const uint8_t* bits = reader.skip(vector_.size());
    if (reader.wrong()) return refuse(Refusal::MESSAGE);
    if (reader.short_of_bytes()) return Step::MORE;
    at_ += static_cast<size_t>(reader.next() - start);
    return has_vector_ ? refuse(Refusal::VECTOR) : set_vector(bits, announced);
}

Response::Step Response::set_vector(const uint8_t* bits, uint32_t announced) {
    uint32_t sent = 0;
    for (size_t index = 0; index < vector_.size(); index++) {
        const size_t columns = columns_.size() - 8 * index;
        const uint32_t known = columns >= 8 ? 0xFF : (1u << columns) - 1;
        vector_[index] = bits[index];
        sent += static_cast<uint32_t>(__builtin_popcount(bits[index] & known));
    }
    if (sent != announced) return refuse(Refusal::VECTOR);
    // There must be a row to repeat from.
    if (sent != columns_.size() && !has_before_) return refuse(Refusal::VECTOR);
    has_vector_ = true;
    return Step::DONE;
}

Response::Step Response::row() {
    while (column_ < columns_.size()) {
        Column& column = columns_[column_];
        if (has_vector_ && !(vector_[column_ >> 3] >> (column_ & 7) & 1)) {
            column.repeat();
        } else {
            const Step step = value(column);
            if (step != Step::DONE) return step;
        }
        column_++;
    }
    has_vector_ = false;
    has_before_ = true;
    rows_++;
    all_rows_++;
    state_ = State::MESSAGES;
    return Step::DONE;
}

Response::Step Response::value(Column& column) {
    const size_t left = payload_.size() - at_;
    if (left == 0) return Step::MORE;
    const uint8_t* start = payload_.data() + at_;
    const size_t size = *start;
    if (size == 0 || size == Reader::ABSENT) {
        column.add_null();
        at_++;
        return Step::DONE;
    }
    if (size == Reader::LONG) return chunks(column);
    const auto index = static_cast<int64_t>(column_);
    if (size > LONGEST_SHORT || size > column.limit()) return refuse(Refusal::LENGTH, index);
    if (left <= size) return Step::MORE;
    if (!column.add(start + 1, size, left - 1)) return refuse(Refusal::VALUE, index);
    at_ += 1 + size;
    return Step::DONE;
}

Response::Step Response::chunks(Column& column) {
    const uint8_t* start = payload_.data() + at_;
    Reader reader(start + 1, payload_.data() + payload_.size());
    const auto index = static_cast<int64_t>(column_);
    joined_.clear();
    for (;;) {
        const uint64_t size = reader.number(4);
        if (reader.wrong() || joined_.size() + size > column.limit()) {
            return refuse(Refusal::LENGTH, index);
        }
        if (reader.short_of_bytes()) return Step::MORE;
        if (size == 0) break;
        const uint8_t* chunk = reader.skip(size);
        if (reader.short_of_bytes()) return Step::MORE;
        joined_.insert(joined_.end(), chunk, chunk + size);
    }
    if (joined_.empty()) {
        column.add_null();
    } else if (!column.add(joined_.data(), joined_.size(), joined_.size())) {
        return refuse(Refusal::VALUE, index);
    }
    at_ += static_cast<size_t>(reader.next() - start);
    return Step::DONE;
}

void Response::read_tail() {
    if (tail_read_ || tail_.empty()) return;
    Reader reader(tail_.data() + 1, tail_.data() + tail_.size());
    reader.number(4);  // status of the call
    reader.number(2);  // end to end sequence
    reader.number(4);  // row
    reader.number(2);  // error, as far as two bytes hold it
    reader.number(2);
    reader.number(2);  // error of an element
    reader.number(2);  // cursor
    reader.number(2);  // position of the error
    reader.skip(6);    // kind of statement, fatal, flags, options, UPI, flags
    reader.number(4);  // address of a row, in five parts
    reader.number(2);
    reader.byte();
    reader.number(4);
    reader.number(2);
    reader.number(4);  // error of the operating system
    reader.byte();     // statement
    reader.byte();     // call
    reader.number(2);
    reader.number(4);  // iterations
    reader.skip_sized();
    const bool plain = reader.number(2) == 0 && reader.number(4) == 0 && reader.number(2) == 0;
    const uint64_t error = reader.number(4);
    const uint64_t counted = reader.number(8);
    // With errors of a batch, which no query has, more would stand here: the count stays unknown.
    if (!reader.ok() || !plain) return;
    tail_read_ = true;
    error_ = static_cast<int64_t>(error);
    counted_ = static_cast<int64_t>(counted & INT64_MAX);
}

Refusal Response::finish() {
    if (refusal_ != Refusal::NONE) return refusal_;
    if (state_ != State::TAIL || !tail_read_) {
        refuse(Refusal::ENDED);
    } else if (counted_ != all_rows_) {
        refuse(Refusal::COUNT);
    } else {
        for (size_t index = 0; index < columns_.size(); index++) {
            if (!columns_[index].is_text()) {
                refuse(Refusal::TEXT, static_cast<int64_t>(index));
                break;
            }
        }
    }
    return refusal_;
}

Progress Response::progress() const {
    return {rows_, all_rows_, counted_, error_, refused_column_};
}

void Response::repeats_before(int64_t* counts) const {
    for (const Column& column : columns_) *counts++ = column.repeats_before();
}

void Response::take(ArrowArray* arrays) {
    for (size_t index = 0; index < columns_.size(); index++) columns_[index].take(&arrays[index]);
}

Response::Step Response::refuse(Refusal reason, int64_t column) {
    if (reason == Refusal::VALUE && column >= 0 && columns_[static_cast<size_t>(column)].is_moment()) {
        reason = Refusal::MOMENT;
    }
    refusal_ = reason;
    refused_column_ = column;
    return Step::REFUSED;
}

}  // namespace unloader::oracle
