// Texts of dates, times and timestamps under a mask: those of writers.text.datetime_texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace unloader {

// A mask made ready for one column: what writers.native.description.moment_program describes. It does
// not change once made, so threads may share it.
class Moments {
public:
    // nullptr: the program is malformed.
    static std::unique_ptr<Moments> make(const uint8_t* program, size_t size);

    Moments(const Moments&) = delete;
    Moments& operator=(const Moments&) = delete;
    ~Moments();

    // Most bytes that one write touches; a text is never longer.
    size_t bound() const;

    // Whether values are 8 bytes wide, else 4.
    bool wide() const;

    // Puts the text of a value at `out` and returns its end; nullptr: refused, and the plain
    // encoder says why.
    char* write(char* out, int64_t value) const;

    // Writes `count` values of an Arrow buffer (4 or 8 bytes each, as wide() says), the text of
    // number i at out + i * stride, and its length to lengths[i], REFUSED for what write refuses.
    // A stride is at least bound(). Values of null rows may be anything; ignore what became of
    // them. Returns whether none was refused.
    bool write_all(char* out, size_t stride, const uint8_t* values, size_t count,
                   uint32_t* lengths) const;

    static constexpr uint32_t REFUSED = 0xFFFFFFFFu;

private:
    struct Program;
    explicit Moments(std::unique_ptr<Program> program);
    std::unique_ptr<Program> program_;
};

}  // namespace unloader
