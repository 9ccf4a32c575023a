// Masks of two-digit numbers and constants, whose texts all have one layout: a template whose
// digits are put into place.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "calendar.h"
#include "digits.h"
#include "moment_program.h"

namespace unloader {

// The digits of numbers that dates and times are made of, first digit lowest, as tables: 8 KiB that
// stay in a core's first cache. Dividing instead cost a tenth of the whole encoder on the reference
// table (measured).
struct Pairs {
    uint16_t digits[100] = {};

    constexpr Pairs() {
        for (unsigned i = 0; i < 100; ++i) {
            digits[i] = static_cast<uint16_t>(('0' + i / 10) | ('0' + i % 10) << 8);
        }
    }
};
constexpr Pairs PAIRS;

constexpr uint32_t four_digits(uint32_t first, uint32_t second) {
    return PAIRS.digits[first] | uint32_t{PAIRS.digits[second]} << 16;
}

// "HHMI" of each minute of a day, and of 24:00.
struct Minutes {
    uint32_t digits[1441] = {};

    constexpr Minutes() {
        for (uint32_t i = 0; i <= 1440; ++i) digits[i] = four_digits(i / 60, i % 60);
    }
};
constexpr Minutes MINUTES;

// "MMDD" of each day of a year that begins on March 1.
struct MonthDays {
    uint32_t digits[366] = {};

    constexpr MonthDays() {
        for (uint32_t i = 0; i < 366; ++i) {
            const MonthDay date = month_day(i);
            digits[i] = four_digits(date.month, date.day);
        }
    }
};
constexpr MonthDays MONTH_DAYS;

constexpr uint64_t PADDED_TIME = UINT64_C(0x3030) << 48;

// The date written last; dates often repeat from row to row.
struct LastDate {
    uint32_t days = 0xFFFFFFFFu;  // since 0001-01-01; no day of those years
    uint64_t digits = 0;          // "YYYYMMDD"
};

// A layout of the texts of the years 1 to 9999.
struct QuickLayout {
    static constexpr size_t MOST_BYTES = 48;
    static constexpr size_t MOST_PLACES = 20;

    // False: the mask needs more than this.
    bool make(const MomentProgram& program);

    // Most bytes that a write touches.
    size_t bound() const {
        const size_t front = std::max(whole_blocks(width), BLOCK_BYTES);
        if (!trimmed) return front;
        return std::max(front, width + 10 + whole_blocks(behind_bytes));
    }

    uint32_t width = 0;  // without a trimmed fraction and what is behind it
    bool has_dates = false, has_times = false;
    uint8_t fraction_at = 0, fraction_digits = 0;
    bool trimmed = false;
    uint32_t behind_bytes = 0;
    // Copies of 8 canonical digits, then from fours_at on of 4, and from twos_at on of 2.
    struct Place {
        uint8_t at, from;
    };
    Place places[MOST_PLACES];
    uint32_t fours_at = 0, twos_at = 0, place_count = 0;
    char text[MOST_BYTES];
    char behind[MOST_BYTES];

    // Takes days since 0001-01-01 and nanoseconds of the second.
    char* write(char* out, uint32_t days, uint32_t day_second, uint32_t nanoseconds,
                LastDate& last) const {
        // "YYYYMMDDHHMISS", and two more zeros.
        uint64_t canonical[2] = {EIGHT_ZEROS, EIGHT_ZEROS};
        if (has_dates) {
            if (days != last.days) last = {days, date_digits(days)};
            canonical[0] = last.digits;
        }
        if (has_times) {
            const uint32_t minute = day_second / 60;
            const uint32_t second = day_second - minute * 60;
            canonical[1] = PADDED_TIME | MINUTES.digits[minute] |
                           uint64_t{PAIRS.digits[second]} << 32;
        }
        copy_blocks(out, text, width);
        const char* from = reinterpret_cast<const char*>(canonical);
        uint32_t i = 0;
        for (; i < fours_at; i++) std::memcpy(out + places[i].at, from + places[i].from, 8);
        for (; i < twos_at; i++) std::memcpy(out + places[i].at, from + places[i].from, 4);
        for (; i < place_count; i++) std::memcpy(out + places[i].at, from + places[i].from, 2);
        if (nanoseconds && fraction_digits) {
            write_fraction(out + fraction_at, nanoseconds, fraction_digits);
        }
        out += width;
        if (!trimmed) return out;
        if (nanoseconds) out = write_trimmed_fraction(out, nanoseconds);
        if (behind_bytes) copy_blocks(out, behind, behind_bytes);
        return out + behind_bytes;
    }

private:
    static constexpr size_t BLOCK_BYTES = 16;

    bool add(const Op& op);
    bool add_pair(Source source);
    void join_places();
    bool has_run(uint32_t first, uint32_t pairs) const;

    static uint64_t date_digits(uint32_t days) {
        const YearParts parts = near_year_parts(days);
        const auto year = static_cast<uint32_t>(parts.year);
        const uint32_t century = year / 100;
        const uint32_t years = PAIRS.digits[century] | uint32_t{PAIRS.digits[year % 100]} << 16;
        return years | uint64_t{MONTH_DAYS.digits[parts.march_day]} << 32;
    }

    // Of constant sizes, which become a few wide stores.
    static void copy_blocks(char* out, const char* from, size_t bytes) {
        std::memcpy(out, from, BLOCK_BYTES);
        if (bytes > BLOCK_BYTES) std::memcpy(out + BLOCK_BYTES, from + BLOCK_BYTES, BLOCK_BYTES);
        if (bytes > 2 * BLOCK_BYTES) {
            std::memcpy(out + 2 * BLOCK_BYTES, from + 2 * BLOCK_BYTES, BLOCK_BYTES);
        }
    }

    static size_t whole_blocks(size_t bytes) {
        return (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
    }
};

}  // namespace unloader
