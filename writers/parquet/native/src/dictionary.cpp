#include "dictionary.h"

#include <algorithm>

namespace unloader {

void Places::enlarge() {
    const std::vector<Place> old = std::move(places_);
    places_.assign(std::max<size_t>(1024, old.size() * 2), Place{0, 0});
    // The place follows from the tag, so that entries need not be hashed again.
    const size_t mask = places_.size() - 1;
    for (const Place& each : old) {
        if (!each.number) continue;
        size_t at = each.tag & mask;
        while (places_[at].number) at = (at + 1) & mask;
        places_[at] = each;
    }
}

uint64_t hash_of(const char* data, size_t size) {
    uint64_t hash = size * 0x9e3779b97f4a7c15;
    uint64_t part = 0;
    for (; size > 8; data += 8, size -= 8) {
        std::memcpy(&part, data, 8);
        hash = mixed(hash ^ part);
    }
    part = 0;
    if (size) std::memcpy(&part, data, size);
    return mixed(hash ^ part);
}

void Indexes::finish(Bytes& out, size_t entries) {
    // One entry could do without a bit, but not every reader knows numbers of none.
    const unsigned width = entries < 3 ? entries > 0 : bits_of(static_cast<uint32_t>(entries - 1));
    *out.grow(1) = static_cast<char>(width);
    if (!indexes_.empty()) put_hybrid(out, indexes_.data(), indexes_.size(), width);
    indexes_.clear();
}

uint32_t ByteDictionary::find(const char* data, uint32_t size) {
    const auto next = static_cast<uint32_t>(starts_.size());
    const auto same = [&](uint32_t entry) {
        const Start start = starts_[entry];
        return start.size == size &&
               (size == 0 || std::memcmp(values_.data() + start.at, data, size) == 0);
    };
    const uint32_t found = places_.find(hash_of(data, size), next, same);
    if (found == next) {
        if (!fixed_) values_.append(&size, sizeof size);
        starts_.push_back({values_.size(), size});
        values_.append(data, size);
    }
    return found;
}

}  // namespace unloader
