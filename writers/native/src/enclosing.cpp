#include "enclosing.h"

#include <algorithm>
#include <cstring>

namespace unloader {
namespace {

char* put(char* out, std::string_view text) {
    if (!text.empty()) std::memcpy(out, text.data(), text.size());
    return out + text.size();
}

bool holds(std::string_view text, std::string_view mark) {
    return text.find(mark) != std::string_view::npos;
}

// Replaces marks from left to right; none of them begins another, and no replacement is searched
// again. `special` has the first byte of each.
char* put_replaced(char* out, std::string_view text, const std::vector<Replacement>& pairs,
                   const SpecialBytes& special) {
    size_t done = 0;
    for (size_t at = 0; at < text.size();) {
        if (!special.has(text[at])) {
            ++at;
            continue;
        }
        const Replacement* found = nullptr;
        for (const auto& pair : pairs) {
            if (text.compare(at, pair.from.size(), pair.from) == 0) found = &pair;
        }
        if (!found) {
            ++at;
            continue;
        }
        out = put(out, text.substr(done, at - done));
        out = put(out, found->to);
        done = at += found->from.size();
    }
    return put(out, text.substr(done));
}

}  // namespace

bool runs_into(std::string_view text, std::string_view mark) {
    size_t done = 0;
    for (size_t at; (at = text.find(mark, done)) != std::string_view::npos;) {
        done = at + mark.size();
    }
    // What is left may end in the beginning of the mark that the mark's own beginning completes.
    const size_t longest = std::min(mark.size() - 1, text.size() - done);
    for (size_t size = longest; size > 0; --size) {
        const auto begun = mark.substr(0, size);
        const auto rest = mark.substr(size);
        if (text.substr(text.size() - size) == begun && mark.substr(0, rest.size()) == rest) {
            return true;
        }
    }
    return false;
}

Enclosing::Enclosing(const Format& format) : format_(format) {
    for (const auto& pair : format.inside) inside_.add_first(pair.from);
    inside_.add_first(format.enclosure);
    for (const auto& mark : format.refused) {
        inside_.add_first(mark);
        outside_.add_first(mark);
    }
    switch (format.protection) {
        case Protection::ENCLOSED:
            for (const auto& mark : format.enclosed_for) outside_.add_first(mark);
            for (const auto& mark : format.runs) outside_.add_first(mark);
            break;
        case Protection::ESCAPED:
            for (const auto& pair : format.bare) outside_.add_first(pair.from);
            break;
        case Protection::REFUSED:
            for (const auto& mark : format.forbidden) outside_.add_first(mark);
            for (const auto& mark : format.runs) outside_.add_first(mark);
            break;
    }
    most_added_ = 2 * format.enclosure.size() + format.protected_null.size();
}

char* Enclosing::write(char* out, std::string_view text, bool always) const {
    for (const auto& mark : format_.refused) {
        if (holds(text, mark)) return nullptr;
    }
    switch (format_.protection) {
        case Protection::ESCAPED: return escaped(out, text);
        case Protection::REFUSED: return may_stand_bare(text) ? put(out, text) : nullptr;
        case Protection::ENCLOSED: break;
    }
    return always || needs_enclosing(text) ? enclosed(out, text) : put(out, text);
}

char* Enclosing::enclosed(char* out, std::string_view text) const {
    const std::string_view mark = format_.enclosure;
    if (format_.refuse_enclosure && holds(text, mark)) return nullptr;
    if (format_.enclosure_runs && runs_into(text, mark)) return nullptr;
    out = put(out, mark);
    const bool special = inside_.occur_in(text.data(), text.size());
    out = special ? put_replaced(out, text, format_.inside, inside_) : put(out, text);
    return put(out, mark);
}

char* Enclosing::escaped(char* out, std::string_view text) const {
    char* end = put_replaced(out, text, format_.bare, outside_);
    if (std::string_view(out, static_cast<size_t>(end - out)) != format_.null_text) return end;
    return format_.protected_null.empty() ? nullptr : put(out, format_.protected_null);
}

bool Enclosing::needs_enclosing(std::string_view text) const {
    const auto held = [&](const std::string& mark) { return holds(text, mark); };
    const auto& marks = format_.enclosed_for;
    if (minds(text) || std::any_of(marks.begin(), marks.end(), held)) return true;
    const auto met = [&](const std::string& mark) { return runs_into(text, mark); };
    return std::any_of(format_.runs.begin(), format_.runs.end(), met);
}

bool Enclosing::may_stand_bare(std::string_view text) const {
    const auto held = [&](const std::string& mark) { return holds(text, mark); };
    const auto met = [&](const std::string& mark) { return runs_into(text, mark); };
    return !minds(text) &&
           std::none_of(format_.forbidden.begin(), format_.forbidden.end(), held) &&
           std::none_of(format_.runs.begin(), format_.runs.end(), met);
}

}  // namespace unloader
