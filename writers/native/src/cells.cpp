#include "cells.h"

#include <algorithm>

namespace unloader {
namespace {

// What a cell is enclosed with, if it is in any case.
std::string mark_of(const Column& column) {
    const auto& style = column.style();
    return style.spec.always ? style.format.enclosure : std::string();
}

}  // namespace

Cells::Cells(const Column& column, const Enclosing& enclosing, const std::string& separator)
    : column_(column),
      enclosing_(enclosing),
      usual_(usual_step()),
      step_(usual_),
      may_be_null_(column.may_be_null()),
      always_(column.style().spec.always),
      opening_(mark_of(column)),
      closing_(mark_of(column) + separator),
      separator_(separator),
      null_(column.style().format.null_text + separator) {}

Cells::Step Cells::usual_step() const {
    const auto& spec = column_.style().spec;
    if (column_.is_text()) return Step::LOOKED_AT;
    if (!spec.leaves || spec.like_null) return spec.leaves ? Step::IN_PLACE : Step::SEARCHED;
    if (spec.index != Kind::NONE) return Step::IN_PLACE;
    switch (column_.kind()) {
        case Kind::INT64: return Step::INTEGER;
        case Kind::DECIMAL: return Step::DECIMAL;
        case Kind::MOMENT: return Step::SLOT;
        default: return Step::IN_PLACE;
    }
}

void Cells::look_into(int64_t row, int64_t count) {
    step_ = usual_;
    if (usual_ == Step::SLOT) fill_slots(row, count);
    if (!column_.is_contiguous()) return;
    const auto text = column_.span(row, count);
    if (enclosing_.special(always_).occur_in(text.data(), text.size())) return;
    if (column_.kind() == Kind::TEXT32) {
        step_ = always_ ? Step::TEXT32_WRAPPED : Step::TEXT32_BARE;
    } else {
        step_ = always_ ? Step::TEXT64_WRAPPED : Step::TEXT64_BARE;
    }
}

void Cells::fill_slots(int64_t row, int64_t count) {
    const auto& moments = *column_.style().moments;
    const auto rows = static_cast<size_t>(count);
    stride_ = std::max(moments.bound(), SLACK);
    slot_row_ = row;
    if (lengths_.size() < rows) {
        slots_.resize(rows * stride_);
        lengths_.resize(rows);
    }
    moments.write_all(slots_.data(), stride_, column_.moments_at(row), rows, lengths_.data());
}

size_t Cells::bound(int64_t row, int64_t count) const {
    const size_t text = column_.bound(row, count);
    const bool grows = step_ == Step::LOOKED_AT || step_ == Step::SEARCHED;
    const size_t each = opening_.size() + closing_.size() + null_.size() + enclosing_.bound(0);
    return static_cast<size_t>(count) * each + (grows ? 2 * text : text);
}

Outcome Cells::looked_at(char*& out, std::string_view text) const {
    const auto& special = enclosing_.special(always_);
    if (special.occur_in(text.data(), text.size())) return protect(out, text);
    if (!always_ && enclosing_.minds(text)) return protect(out, text);
    char* end = opening_.put(out);
    const char* limit = column_.limit() ? column_.limit() : text.data() + text.size();
    out = closing_.put(put_text(end, text.data(), text.size(), limit));
    return Outcome::WRITTEN;
}

Outcome Cells::in_place(char*& out, int64_t place) const {
    char* const start = opening_.put(out);
    char* end = start;
    const Outcome outcome = column_.write(end, place);
    if (outcome != Outcome::WRITTEN) return outcome;
    const std::string_view text(start, static_cast<size_t>(end - start));
    if (!always_ && enclosing_.minds(text)) return protect(out, std::string(text));
    out = closing_.put(end);
    return Outcome::WRITTEN;
}

Outcome Cells::searched(char*& out, int64_t place) {
    made_.resize(column_.bound_at(place));
    char* end = made_.data();
    const Outcome outcome = column_.write(end, place);
    if (outcome != Outcome::WRITTEN) return outcome;
    return protect(out, {made_.data(), static_cast<size_t>(end - made_.data())});
}

Outcome Cells::protect(char*& out, std::string_view text) const {
    char* end = enclosing_.write(out, text, always_);
    if (!end) return Outcome::REFUSED;
    out = separator_.put(end);
    return Outcome::WRITTEN;
}

}  // namespace unloader
