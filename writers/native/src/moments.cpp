#include "moments.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "calendar.h"
#include "digits.h"
#include "moment_program.h"
#include "numbers.h"
#include "quick_moments.h"

namespace unloader {

namespace {

constexpr int64_t LAST_YEAR = 9999;
constexpr int64_t LAST_JULIAN_DAY = 9999999;
constexpr uint64_t SECONDS_TO_9999 = DAYS_TO_9999 * DAY_SECONDS;

// A value taken apart: local days since 1970-01-01, second of the day, nanosecond of the second.
struct Instant {
    int64_t days;
    uint32_t day_second;
    uint32_t nanoseconds;
};

// Numbers that only few masks ask for.
struct Uses {
    bool dates, year_day, week_day, iso_week;
};

char* write_number(char* out, const Op& op, uint64_t number) {
    if (op.digits) number %= POWERS_OF_TEN[op.digits];
    const int digits = digit_count(number);
    const int width = digits < op.pad ? op.pad : digits;
    write_padded(out, number, width);
    return out + width;
}

}  // namespace

struct Moments::Program {
    MomentProgram plan;
    QuickLayout quick;
    bool is_quick;
    Uses uses;
    size_t bound;

    char* write_slowly(char* out, const Instant& instant) const;
    bool numbers_of(const Instant& instant, uint64_t* numbers) const;

    template <int UNIT_DIGITS>
    char* write(char* out, int64_t value, LastDate& last) const;
    char* write_days(char* out, int64_t days, LastDate& last) const;
    char* write_any(char* out, int64_t value, LastDate& last) const;
};

// Returns false for what the mask cannot show.
bool Moments::Program::numbers_of(const Instant& instant, uint64_t* numbers) const {
    if (uses.dates) {
        const YearParts parts = year_parts(instant.days);
        if ((plan.checks & YEAR_CHECKED) &&
            (parts.year < plan.first_year || parts.year > LAST_YEAR)) {
            return false;
        }
        const auto counted = static_cast<uint64_t>(parts.year > 0 ? parts.year : 1 - parts.year);
        const MonthDay date = month_day(parts.march_day);
        numbers[CENTURY] = counted / 100 % 100;
        numbers[YEAR_OF_CENTURY] = counted % 100;
        numbers[MONTH] = date.month;
        numbers[DAY] = date.day;
        numbers[ERA] = parts.year > 0;
        numbers[COUNTED_YEAR] = counted;
        if (uses.year_day) numbers[YEAR_DAY] = year_day(parts);
    }
    if (uses.week_day) numbers[WEEK_DAY] = week_day(instant.days);
    if (uses.iso_week) {
        const YearParts week = iso_week(instant.days);
        if ((plan.checks & ISO_YEAR_CHECKED) && (week.year < 1 || week.year > LAST_YEAR)) {
            return false;
        }
        numbers[ISO_YEAR] = static_cast<uint64_t>(week.year);
        numbers[ISO_WEEK] = week.march_day;
    }
    const int64_t julian_day = instant.days + UNIX_EPOCH_JULIAN_DAY;
    if ((plan.checks & JULIAN_DAY_CHECKED) && (julian_day < 0 || julian_day > LAST_JULIAN_DAY)) {
        return false;
    }
    numbers[JULIAN_DAY] = static_cast<uint64_t>(julian_day);
    const uint32_t minutes = instant.day_second / 60;
    numbers[HOUR] = minutes / 60;
    numbers[MINUTE] = minutes % 60;
    numbers[SECOND] = instant.day_second % 60;
    numbers[DAY_SECOND] = instant.day_second;
    return true;
}

char* Moments::Program::write_slowly(char* out, const Instant& instant) const {
    uint64_t numbers[SOURCES];
    if (!numbers_of(instant, numbers)) return nullptr;
    for (const Op& op : plan.ops) {
        switch (op.code) {
            case OpCode::LITERAL:
                std::memcpy(out, op.text.data(), op.text.size());
                out += op.text.size();
                break;
            case OpCode::PAIR:
                write_pair(out, static_cast<uint32_t>(numbers[op.source]));
                out += 2;
                break;
            case OpCode::TABLE: {
                const auto slot = static_cast<size_t>(numbers[op.source] - op.first);
                std::memcpy(out, op.text.data() + slot * SLOT_BYTES, SLOT_BYTES);
                out += op.lengths[slot];
                break;
            }
            case OpCode::NUMBER:
                out = write_number(out, op, numbers[op.source]);
                break;
            case OpCode::FRACTION:
                if (op.digits) write_fraction(out, instant.nanoseconds, op.digits);
                out += op.digits;
                break;
            case OpCode::TRIMMED:
                if (instant.nanoseconds) out = write_trimmed_fraction(out, instant.nanoseconds);
                break;
        }
    }
    return out;
}

char* Moments::Program::write_days(char* out, int64_t days, LastDate& last) const {
    const auto since = static_cast<uint64_t>(days + JANUARY_1_YEAR_1);
    if (is_quick && since < DAYS_TO_9999) {
        return quick.write(out, static_cast<uint32_t>(since), 0, 0, last);
    }
    return write_slowly(out, {days, 0, 0});
}

template <int UNIT_DIGITS>
char* Moments::Program::write(char* out, int64_t value, LastDate& last) const {
    constexpr auto TICKS = static_cast<int64_t>(POWERS_OF_TEN[UNIT_DIGITS]);
    const bool is_time = plan.kind == ValueKind::TIME_OF_DAY;
    // 24:00 is a time of its own.
    if (is_time && (value < 0 || value > DAY_SECONDS * TICKS)) return nullptr;
    if (plan.shift && __builtin_add_overflow(value, plan.shift, &value)) return nullptr;

    int64_t fraction;
    const int64_t seconds = floor_divide(value, TICKS, fraction);
    if (plan.kept > 1 && static_cast<uint32_t>(fraction) % plan.kept) return nullptr;
    const auto nanoseconds =
        static_cast<uint32_t>(fraction) * static_cast<uint32_t>(POWERS_OF_TEN[9 - UNIT_DIGITS]);
    if (is_time) {
        const auto day_second = static_cast<uint32_t>(seconds);
        return is_quick && day_second <= DAY_SECONDS
                   ? quick.write(out, 0, day_second, nanoseconds, last)
                   : write_slowly(out, {0, day_second, nanoseconds});
    }
    const uint64_t since = static_cast<uint64_t>(seconds) +
                           static_cast<uint64_t>(JANUARY_1_YEAR_1 * DAY_SECONDS);
    if (is_quick && since < SECONDS_TO_9999) {
        const uint64_t days = since / DAY_SECONDS;
        const auto day_second = static_cast<uint32_t>(since - days * DAY_SECONDS);
        if ((plan.checks & TIME_OF_DAY_REFUSED) && (day_second | nanoseconds)) return nullptr;
        return quick.write(out, static_cast<uint32_t>(days), day_second, nanoseconds, last);
    }
    int64_t day_second;
    const int64_t days = floor_divide(seconds, DAY_SECONDS, day_second);
    if ((plan.checks & TIME_OF_DAY_REFUSED) && (day_second || nanoseconds)) return nullptr;
    return write_slowly(out, {days, static_cast<uint32_t>(day_second), nanoseconds});
}

char* Moments::Program::write_any(char* out, int64_t value, LastDate& last) const {
    if (plan.kind == ValueKind::DAYS) return write_days(out, value, last);
    switch (plan.unit_digits) {
        case 0:
            return write<0>(out, value, last);
        case 3:
            return write<3>(out, value, last);
        case 6:
            return write<6>(out, value, last);
        default:
            return write<9>(out, value, last);
    }
}

namespace {

Uses uses_of(const MomentProgram& plan) {
    Uses uses{};
    uses.year_day = plan.uses(YEAR_DAY);
    uses.week_day = plan.uses(WEEK_DAY);
    uses.iso_week = plan.uses(ISO_WEEK) || plan.uses(ISO_YEAR);
    uses.dates = uses.year_day || (plan.checks & YEAR_CHECKED);
    for (const Source source : {CENTURY, YEAR_OF_CENTURY, MONTH, DAY, ERA, COUNTED_YEAR}) {
        uses.dates = uses.dates || plan.uses(source);
    }
    return uses;
}

size_t bytes_of(const Op& op) {
    switch (op.code) {
        case OpCode::LITERAL:
            return op.text.size();
        case OpCode::PAIR:
            return 2;
        case OpCode::TABLE:
            return *std::max_element(op.lengths.begin(), op.lengths.end());
        case OpCode::NUMBER:
            return std::max<size_t>(op.digits ? op.digits : INTEGER_BOUND, op.pad);
        case OpCode::FRACTION:
            return op.digits;
        case OpCode::TRIMMED:
            break;
    }
    return 10;
}

size_t bound_of(const MomentProgram& plan) {
    size_t bytes = 0;
    bool has_tables = false;
    for (const Op& op : plan.ops) {
        bytes += bytes_of(op);
        has_tables = has_tables || op.code == OpCode::TABLE;
    }
    // Texts of tables are copied in whole slots.
    return bytes + (has_tables ? SLOT_BYTES : 0);
}

}  // namespace

Moments::Moments(std::unique_ptr<Program> program) : program_(std::move(program)) {}
Moments::~Moments() = default;

std::unique_ptr<Moments> Moments::make(const uint8_t* bytes, size_t size) {
    auto program = std::make_unique<Program>();
    if (!read_program(bytes, size, program->plan)) return nullptr;
    program->is_quick = program->quick.make(program->plan);
    program->uses = uses_of(program->plan);
    program->bound = bound_of(program->plan);
    if (program->is_quick) program->bound = std::max(program->bound, program->quick.bound());
    return std::unique_ptr<Moments>(new Moments(std::move(program)));
}

size_t Moments::bound() const { return program_->bound; }
bool Moments::wide() const { return program_->plan.wide; }

char* Moments::write(char* out, int64_t value) const {
    LastDate last;
    return program_->write_any(out, value, last);
}

bool Moments::write_all(char* out, size_t stride, const uint8_t* values, size_t count,
                        uint32_t* lengths) const {
    const Program& program = *program_;
    LastDate last;
    bool all = true;
    for (size_t i = 0; i < count; i++, out += stride) {
        int64_t value;
        if (program.plan.wide) {
            std::memcpy(&value, values + 8 * i, 8);
        } else {
            int32_t narrow;
            std::memcpy(&narrow, values + 4 * i, 4);
            value = narrow;
        }
        const char* end = program.write_any(out, value, last);
        lengths[i] = end ? static_cast<uint32_t>(end - out) : REFUSED;
        all = all && end;
    }
    return all;
}

}  // namespace unloader
