// The distinct values of a column chunk, numbered in the order they came.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "bytes.h"
#include "packing.h"

namespace unloader {

// Hash places for numbers of entries; whoever has the entries compares them.
class Places {
public:
    // Returns the entry with this hash for which `same` is true, or `next`, which is then added.
    template <typename Same>
    uint32_t find(uint64_t hash, uint32_t next, Same same) {
        if ((next + 1) * size_t{2} > places_.size()) enlarge();
        const size_t mask = places_.size() - 1;
        const auto tag = static_cast<uint32_t>(hash >> 32);
        for (size_t at = tag & mask;; at = (at + 1) & mask) {
            Place& place = places_[at];
            if (!place.number) {
                place = {tag, next + 1};
                return next;
            }
            if (place.tag == tag && same(place.number - 1)) return place.number - 1;
        }
    }

    void clear() { places_.clear(); }

private:
    struct Place {
        uint32_t tag;     // also where it lies, together with the number of places
        uint32_t number;  // of the entry, from 1; 0: none
    };

    void enlarge();

    std::vector<Place> places_;
};

inline uint64_t mixed(uint64_t value) {
    value *= 0x9e3779b97f4a7c15;
    value ^= value >> 32;
    value *= 0xd6e8feb86659fd93;
    return value ^ value >> 29;
}

// The hash of bytes; only files depend on nothing of it, so any good one does.
uint64_t hash_of(const char* data, size_t size);

// Numbers of values in a page, and their bytes.
class Indexes {
public:
    void put(uint32_t index) { indexes_.push_back(index); }
    size_t size() const { return indexes_.size(); }

    // Writes them for a dictionary of so many entries, and begins anew.
    void finish(Bytes& out, size_t entries);

private:
    std::vector<uint32_t> indexes_;
};

template <typename Number>
class NumberDictionary {
public:
    uint32_t find(Number value) {
        const auto next = static_cast<uint32_t>(entries());
        const auto same = [&](uint32_t entry) {
            return value_of(entry) == value;
        };
        const uint32_t found = places_.find(mixed(value), next, same);
        if (found == next) values_.append(&value, sizeof value);
        return found;
    }
    size_t entries() const { return values_.size() / sizeof(Number); }
    Bytes& bytes() { return values_; }
    void clear() {
        places_.clear();
        values_.clear();
    }

private:
    Number value_of(uint32_t entry) {
        Number value;
        std::memcpy(&value, values_.data() + entry * sizeof value, sizeof value);
        return value;
    }

    Places places_;
    Bytes values_;
};

// Of bytes; with a length in front of each in a page, or all of one length.
class ByteDictionary {
public:
    explicit ByteDictionary(bool fixed) : fixed_(fixed) {}

    uint32_t find(const char* data, uint32_t size);
    size_t entries() const { return starts_.size(); }
    Bytes& bytes() { return values_; }
    void clear() {
        places_.clear();
        values_.clear();
        starts_.clear();
    }

private:
    struct Start {
        size_t at;
        uint32_t size;
    };

    bool fixed_;
    Places places_;
    Bytes values_;
    std::vector<Start> starts_;
};

}  // namespace unloader
