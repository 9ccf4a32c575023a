// A small coverage-guided fuzzer for compilers without libFuzzer: g++ -fsanitize-coverage=trace-pc.
//
// usage: driver CORPUS SECONDS [SEED]    runs the corpus, then mutates it, and adds what finds new code
//        driver FILE                     runs one input
//
// An input under way lies in the file `running` of the corpus, mapped into memory, so that it is
// still there when a sanitizer ends the process. This file itself must not be instrumented.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;
using Clock = std::chrono::steady_clock;

constexpr size_t PLACES = 1 << 16;
constexpr size_t MOST_BYTES = 4096;
uint8_t hits[PLACES];
uint8_t seen[PLACES];
uintptr_t previous;

}  // namespace

// Counts the edge from the last place to this one.
extern "C" void __sanitizer_cov_trace_pc() {
    const auto here = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
    const uintptr_t mixed = (here ^ here >> 16) * 0x9E3779B1u;
    ++hits[(mixed ^ previous) % PLACES];
    previous = mixed >> 1;
}

namespace {

// One bit for once, twice, up to 4, 16 and 256 times.
uint8_t bucket(uint8_t count) {
    return count < 3 ? count : count < 5 ? 4 : count < 17 ? 8 : 16;
}

// Runs an input; tells whether it went where none went before.
bool is_new(const Bytes& input) {
    std::memset(hits, 0, sizeof hits);
    previous = 0;
    LLVMFuzzerTestOneInput(input.data(), input.size());
    bool found = false;
    for (size_t place = 0; place < PLACES; ++place) {
        const uint8_t way = bucket(hits[place]);
        if (way & ~seen[place]) found = true;
        seen[place] |= way;
    }
    return found;
}

Bytes read(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return Bytes(std::istreambuf_iterator<char>(file), {});
}

class Mutator {
public:
    explicit Mutator(uint64_t seed) : random_(seed) {}

    Bytes next(const std::vector<Bytes>& corpus) {
        Bytes input = corpus[below(corpus.size())];
        for (size_t left = 1 + below(6); left; --left) change(input, corpus);
        if (input.size() > MOST_BYTES) input.resize(MOST_BYTES);
        return input;
    }

private:
    size_t below(size_t count) { return random_() % count; }
    uint8_t byte() { return static_cast<uint8_t>(random_()); }

    void change(Bytes& input, const std::vector<Bytes>& corpus) {
        const size_t at = below(input.size() + 1);
        const auto where = input.begin() + static_cast<std::ptrdiff_t>(at);
        const size_t choice = below(7);
        if (choice == 0 || at == input.size()) {
            input.insert(where, 1 + below(8), byte());
        } else if (choice == 1) {
            input[at] = static_cast<uint8_t>(input[at] ^ 1 << below(8));
        } else if (choice == 2) {
            input[at] = byte();
        } else if (choice == 3) {
            input[at] = static_cast<uint8_t>(input[at] + below(9) - 4);
        } else if (choice == 4) {
            const size_t count = 1 + below(std::min<size_t>(input.size() - at, 16));
            input.erase(where, where + static_cast<std::ptrdiff_t>(count));
        } else if (choice == 5) {
            for (size_t i = at; i < input.size() && i < at + 8; ++i) input[i] = byte();
        } else {
            const Bytes& other = corpus[below(corpus.size())];
            const size_t from = other.empty() ? 0 : below(other.size());
            input.resize(at);
            input.insert(input.end(), other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
        }
    }

    std::mt19937_64 random_;
};

// Where the input under way is kept.
class Running {
public:
    explicit Running(const std::filesystem::path& path) {
        const int file = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644);
        if (file < 0 || ftruncate(file, SIZE) != 0) std::exit(2);
        void* mapped = mmap(nullptr, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
        if (mapped == MAP_FAILED) std::exit(2);
        memory_ = static_cast<uint8_t*>(mapped);
    }

    // Zeros behind the input change nothing: they are what a used-up input gives.
    void set(const Bytes& input) {
        std::memset(memory_, 0, SIZE);
        if (!input.empty()) std::memcpy(memory_, input.data(), input.size());
    }

private:
    static constexpr size_t SIZE = MOST_BYTES;
    uint8_t* memory_;
};

int fuzz(const std::filesystem::path& directory, double seconds, uint64_t seed) {
    Running running(directory / "running");
    std::vector<Bytes> corpus;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
        if (entry.path().filename() != "running") corpus.push_back(read(entry.path()));
    }
    if (corpus.empty()) corpus.emplace_back();
    for (auto& input : corpus) {
        if (input.size() > MOST_BYTES) input.resize(MOST_BYTES);
        running.set(input);
        is_new(input);
    }
    const size_t seeds = corpus.size();
    Mutator mutator(seed);
    uint64_t runs = 0;
    const auto until = Clock::now() + std::chrono::duration<double>(seconds);
    for (; Clock::now() < until; ++runs) {
        Bytes input = mutator.next(corpus);
        running.set(input);
        if (!is_new(input)) continue;
        std::ofstream file(directory / ("found-" + std::to_string(seed) + "-" + std::to_string(runs)),
                           std::ios::binary);
        file.write(reinterpret_cast<const char*>(input.data()),
                   static_cast<std::streamsize>(input.size()));
        corpus.push_back(std::move(input));
    }
    size_t places = 0;
    for (const uint8_t way : seen) places += way != 0;
    std::printf("%llu runs from %zu seeds, %zu inputs more, %zu places\n",
                static_cast<unsigned long long>(runs), seeds, corpus.size() - seeds, places);
    std::filesystem::remove(directory / "running");
    return 0;
}

}  // namespace

int main(int count, char** arguments) {
    if (count == 2) {
        const Bytes input = read(arguments[1]);
        return LLVMFuzzerTestOneInput(input.data(), input.size());
    }
    if (count < 3) {
        std::fprintf(stderr, "usage: driver CORPUS SECONDS [SEED] | driver FILE\n");
        return 2;
    }
    return fuzz(arguments[1], std::atof(arguments[2]), count > 3 ? std::strtoull(arguments[3], nullptr, 10) : 1);
}
