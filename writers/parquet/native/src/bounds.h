// The least and the greatest value of a page, in the order that Parquet gives its types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>

#include "../../../native/src/arrow_abi.h"

namespace unloader {

// Of numbers; `Number` decides how they are compared.
template <typename Number>
class NumberBounds {
public:
    // Takes values, which need not be aligned.
    void put(const void* values, size_t count) {
        Number least = least_;
        Number greatest = greatest_;
        bool nan = false;
        for (size_t i = 0; i < count; ++i) {
            const auto value = value_at<Number>(values, static_cast<int64_t>(i));
            // Both comparisons are false for NaN.
            least = value < least ? value : least;
            greatest = greatest < value ? value : greatest;
            if constexpr (std::is_floating_point_v<Number>) nan |= value != value;
        }
        least_ = least;
        greatest_ = greatest;
        any_ |= count > 0;
        nan_ |= nan;
    }

    // Sets the bounds and returns true if the values have bounds, and starts the next page. Values
    // with NaN have no bounds: readers that skip by bounds would skip NaN with the other values.
    bool finish(std::string& least, std::string& greatest) {
        const bool bounded = any_ && !nan_;
        if (bounded) {
            if constexpr (std::is_floating_point_v<Number>) {
                // Zeros are equal, so either may have been there.
                if (least_ == 0) least_ = -Number{0};
                if (greatest_ == 0) greatest_ = Number{0};
            }
            least.assign(reinterpret_cast<const char*>(&least_), sizeof least_);
            greatest.assign(reinterpret_cast<const char*>(&greatest_), sizeof greatest_);
        }
        *this = NumberBounds();
        return bounded;
    }

private:
    using Limits = std::numeric_limits<Number>;
    static constexpr Number HIGHEST = Limits::has_infinity ? Limits::infinity() : Limits::max();
    static constexpr Number LOWEST = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();

    Number least_ = HIGHEST;
    Number greatest_ = LOWEST;
    bool any_ = false;
    bool nan_ = false;
};

// A value is compared and kept up to this length. The footer has no bounds above 4096 bytes
// (`bounds.py`); the byte more shows that a value is longer. A shortened value sorts as the whole one,
// or the same.
constexpr uint32_t KEPT_OF_A_VALUE = 4097;

// Of bytes, compared one by one without a sign, except the first byte where it has one.
class ByteBounds {
public:
    explicit ByteBounds(bool is_signed) : flip_(is_signed ? uint64_t{1} << 63 : 0) {}

    // Takes values that lie behind one another.
    void put(const char* data, const uint32_t* sizes, size_t count) {
        const char* end = data;
        for (size_t i = 0; i < count; ++i) end += sizes[i];
        for (size_t i = 0; i < count; ++i) {
            const uint32_t size = sizes[i] < KEPT_OF_A_VALUE ? sizes[i] : KEPT_OF_A_VALUE;
            const uint64_t start = start_of(data, size, end);
            if (start <= least_start_ || !any_) put_least(data, size, start);
            if (start >= greatest_start_ || !any_) put_greatest(data, size, start);
            any_ = true;
            data += sizes[i];
        }
    }

    bool finish(std::string& least, std::string& greatest) {
        const bool any = any_;
        if (any) {
            least = std::move(least_);
            greatest = std::move(greatest_);
        }
        least_.clear();
        greatest_.clear();
        least_start_ = greatest_start_ = 0;
        any_ = false;
        return any;
    }

private:
    // The first eight bytes as a number that compares as they do; `end` is that of the memory.
    uint64_t start_of(const char* data, size_t size, const char* end) const {
        uint64_t value = 0;
        if (end - data >= 8) {
            std::memcpy(&value, data, 8);
            value = __builtin_bswap64(value);
            if (size < 8) value = size ? value >> (64 - 8 * size) << (64 - 8 * size) : 0;
        } else if (size) {
            std::memcpy(&value, data, size < 8 ? size : 8);
            value = __builtin_bswap64(value);
        }
        return value ^ flip_;
    }

    // Those with the same start and a sign are compared as well: their first byte is the same.
    static bool is_less(const char* data, size_t size, const std::string& other) {
        const size_t both = size < other.size() ? size : other.size();
        const int order = both ? std::memcmp(data, other.data(), both) : 0;
        return order < 0 || (order == 0 && size < other.size());
    }
    static bool is_greater(const char* data, size_t size, const std::string& other) {
        const size_t both = size < other.size() ? size : other.size();
        const int order = both ? std::memcmp(data, other.data(), both) : 0;
        return order > 0 || (order == 0 && size > other.size());
    }
    void put_least(const char* data, size_t size, uint64_t start) {
        if (any_ && start == least_start_ && !is_less(data, size, least_)) return;
        least_.assign(data, size);
        least_start_ = start;
    }
    void put_greatest(const char* data, size_t size, uint64_t start) {
        if (any_ && start == greatest_start_ && !is_greater(data, size, greatest_)) return;
        greatest_.assign(data, size);
        greatest_start_ = start;
    }

    uint64_t flip_;
    uint64_t least_start_ = 0;
    uint64_t greatest_start_ = 0;
    std::string least_;
    std::string greatest_;
    bool any_ = false;
};

}  // namespace unloader
