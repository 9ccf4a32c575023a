#include "moment_program.h"

#include <cstring>

#include "digits.h"

namespace unloader {

namespace {

constexpr uint8_t VERSION = 1;
constexpr uint32_t MOST_LITERAL_BYTES = 1u << 20;
constexpr int64_t MOST_OFFSET_SECONDS = 101 * 3600;

// Numbers of the tables' sources: the first one and how many there are. An hour may be 24.
struct Domain {
    uint32_t first, count;
};

constexpr Domain DOMAINS[SOURCES] = {
    {0, 0},  {0, 0}, {1, 12}, {1, 31}, {0, 25}, {0, 60}, {0, 60}, {0, 2},
    {0, 366}, {0, 7}, {1, 53}, {0, 0},  {0, 0},  {0, 0},  {0, 0},
};

class Reader {
public:
    Reader(const uint8_t* bytes, size_t size) : at_(bytes), left_(size) {}

    template <typename Number>
    Number take() {
        Number value{};
        if (const uint8_t* bytes = take_bytes(sizeof value)) {
            std::memcpy(&value, bytes, sizeof value);
        }
        return value;
    }

    const uint8_t* take_bytes(size_t size) {
        if (size > left_) {
            failed_ = true;
            left_ = 0;
            return nullptr;
        }
        const uint8_t* bytes = at_;
        at_ += size;
        left_ -= size;
        return bytes;
    }

    bool failed() const { return failed_; }
    bool at_end() const { return left_ == 0; }

private:
    const uint8_t* at_;
    size_t left_;
    bool failed_ = false;
};

bool read_literal(Reader& reader, Op& op) {
    const auto size = reader.take<uint32_t>();
    if (size > MOST_LITERAL_BYTES) return false;
    const uint8_t* bytes = reader.take_bytes(size);
    if (bytes && size) op.text.assign(reinterpret_cast<const char*>(bytes), size);
    return bytes;
}

bool read_table(Reader& reader, Op& op) {
    const Domain domain = DOMAINS[op.source];
    if (!domain.count) return false;
    op.first = domain.first;
    op.text.assign(domain.count * SLOT_BYTES, '\0');
    op.lengths.resize(domain.count);
    for (uint32_t slot = 0; slot < domain.count; slot++) {
        const auto length = reader.take<uint8_t>();
        const uint8_t* bytes = reader.take_bytes(length);
        if (!bytes || length > SLOT_BYTES) return false;
        std::memcpy(&op.text[slot * SLOT_BYTES], bytes, length);
        op.lengths[slot] = length;
    }
    return true;
}

bool read_op(Reader& reader, Op& op) {
    op.code = static_cast<OpCode>(reader.take<uint8_t>());
    const auto source = reader.take<uint8_t>();
    op.digits = reader.take<uint8_t>();
    op.pad = reader.take<uint8_t>();
    op.first = 0;
    if (reader.failed() || source >= SOURCES) return false;
    op.source = static_cast<Source>(source);
    switch (op.code) {
        case OpCode::LITERAL:
            return read_literal(reader, op);
        case OpCode::PAIR:
            return source < PAIR_SOURCES;
        case OpCode::TABLE:
            return read_table(reader, op);
        case OpCode::NUMBER:
            return op.digits <= 18 && op.pad <= 18;
        case OpCode::FRACTION:
            return op.digits <= 9;
        case OpCode::TRIMMED:
            return true;
    }
    return false;
}

bool read_header(Reader& reader, MomentProgram& program) {
    if (reader.take<uint8_t>() != VERSION) return false;
    const auto kind = reader.take<uint8_t>();
    program.unit_digits = reader.take<uint8_t>();
    program.wide = reader.take<uint8_t>() != 0;
    program.checks = reader.take<uint8_t>();
    const auto cut = reader.take<uint8_t>();
    const auto offset_seconds = reader.take<int32_t>();
    program.first_year = reader.take<int32_t>();
    if (reader.failed() || kind > 2 || program.unit_digits > 9 || program.unit_digits % 3 ||
        cut > program.unit_digits) {
        return false;
    }
    if (offset_seconds > MOST_OFFSET_SECONDS || offset_seconds < -MOST_OFFSET_SECONDS) return false;
    program.kind = static_cast<ValueKind>(kind);
    // Days are 32 bits, and only ticks have a zone.
    if (program.kind == ValueKind::DAYS && program.wide) return false;
    if (program.kind != ValueKind::TICKS && offset_seconds) return false;
    program.kept = static_cast<uint32_t>(POWERS_OF_TEN[cut]);
    program.shift = offset_seconds * static_cast<int64_t>(POWERS_OF_TEN[program.unit_digits]);
    return true;
}

}  // namespace

bool MomentProgram::uses(Source source) const {
    for (const Op& op : ops) {
        const bool numbers =
            op.code == OpCode::PAIR || op.code == OpCode::TABLE || op.code == OpCode::NUMBER;
        if (numbers && op.source == source) return true;
    }
    return false;
}

bool read_program(const uint8_t* bytes, size_t size, MomentProgram& program) {
    Reader reader(bytes, size);
    if (!read_header(reader, program)) return false;
    while (!reader.at_end()) {
        program.ops.emplace_back();
        if (!read_op(reader, program.ops.back())) return false;
    }
    return !reader.failed();
}

}  // namespace unloader
