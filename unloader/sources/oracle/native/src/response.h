// The responses to fetches: rows are taken out, everything else is for the driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "columns.h"

namespace unloader::oracle {

// Why a response was refused; the numbers are also in decoder.py.
enum class Refusal : int32_t {
    NONE = 0,
    PACKET = 1,         // no packet
    MESSAGE = 2,        // a message where none of its kind belongs
    VECTOR = 3,         // a bit vector that contradicts itself or the row
    LENGTH = 4,         // a value of a length that its column cannot have
    VALUE = 5,          // bytes that are no value of their column
    MOMENT = 6,         // the same, of a date or timestamp
    ROWS = 7,           // more rows than were asked for
    ENDED = 8,          // the response ended amid a message
    COUNT = 9,          // not as many rows as the server says
    TEXT = 10,          // text that is not UTF-8
};

// As decoder.py has it.
struct Progress {
    int64_t rows;      // of this response
    int64_t all_rows;  // of all responses of the statement
    int64_t counted;   // all rows, as the server counts them; -1 until it says
    int64_t error;     // the server's error number; 1403 is the end of the rows
    int64_t column;    // of a refused value, else -1
};

class Response {
public:
    Response(const Description* descriptions, size_t count);

    // Another response follows, to a fetch of as many rows at most. What the one before left goes.
    void begin(int64_t most_rows);

    // Take bytes as they came from the server, in pieces of any size. What is for the driver is
    // added to `output`. After a refusal nothing more may be fed before `begin`.
    Refusal feed(const uint8_t* bytes, size_t size);

    // Check the response as a whole, once the driver has it all.
    Refusal finish();

    // Bytes of a packet that is not whole yet.
    const std::vector<uint8_t>& partial() const { return raw_; }
    std::vector<uint8_t>& output() { return output_; }
    Progress progress() const;

    // For each column how many rows at the start of the response repeat a value of another one.
    void repeats_before(int64_t* counts) const;

    void take(ArrowArray* arrays);

private:
    enum class State { MESSAGES, ROW, TAIL, THROUGH };
    enum class Step { DONE, MORE, REFUSED };

    Refusal packet(const uint8_t* bytes, size_t size);
    Refusal rows();
    Step message();
    Step header();
    Step vector_message();
    Step row();
    Step value(Column& column);
    Step chunks(Column& column);
    Step set_vector(const uint8_t* bits, uint32_t announced);
    void read_tail();
    Step refuse(Refusal reason, int64_t column = -1);
    Refusal refuse_packet();

    std::vector<Column> columns_;
    std::vector<uint8_t> raw_;      // of the packet that has begun
    std::vector<uint8_t> payload_;  // of messages that are not decoded yet
    std::vector<uint8_t> output_;
    std::vector<uint8_t> tail_;     // the messages behind the rows
    std::vector<uint8_t> joined_;   // a value that came in chunks
    std::vector<uint8_t> vector_;
    size_t at_ = 0;                 // in payload_
    size_t column_ = 0;             // the next one of the row
    State state_ = State::MESSAGES;
    Refusal refusal_ = Refusal::NONE;
    bool has_vector_ = false;
    bool has_header_ = false;
    bool has_before_ = false;       // there is a row before, on which a vector may lean
    bool tail_read_ = false;
    int64_t most_rows_ = 0;
    int64_t rows_ = 0;
    int64_t all_rows_ = 0;
    int64_t counted_ = -1;
    int64_t error_ = 0;
    int64_t refused_column_ = -1;
};

}  // namespace unloader::oracle
