// One rank of a job on several machines, started by a test script. It joins the world that the environment describes
// and runs the given command. The status is 0, or 3 with "rank R: CODE: TEXT" on the last line.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <numeric>
#include <random>
#include <string_view>
#include <thread>

#include "engine/rank_of_case.hpp"
#include "shunt/error.hpp"
#include "shunt/world.hpp"
#include "support/round_trip.hpp"
#include "support/shuffle_case.hpp"

namespace shunt::test {
namespace {

// Sanitizers keep freed memory for a while.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

std::uint64_t number(std::string_view text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// Random shuffles, compared bit for bit with the reference.
void run_cases(World& world, std::uint64_t first, std::uint64_t count) {
  for (std::uint64_t seed = first; seed < first + count; ++seed)
    run_case(world, kHostThreads, random_shuffle_case(seed, world.topology()));
}

std::size_t resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return number(line.substr(line.find_first_of("0123456789")));
  return 0;
}

/// Shuffles of changing shapes on two engines; memory must not grow after the first tenth.
void soak(World& world, std::uint64_t count) {
  std::mt19937_64 random(1);  // the same on all ranks
  std::size_t after_a_tenth = 0;
  Engine wide(world, {.hidden = 512, .dtype = f32});
  Engine narrow(world, {.hidden = 24, .dtype = f32});
  for (std::uint64_t i = 0; i < count; ++i) {
    Engine& engine = random() % 2 == 0 ? wide : narrow;
    round_trip(engine, world, static_cast<std::int64_t>(random() % 64), static_cast<std::uint32_t>(i));
    if (i == count / 10) after_a_tenth = resident_kib();
  }
  const std::size_t at_the_end = resident_kib();
  fmt::print("rank {}: resident {} KiB after a tenth, {} KiB at the end\n", world.rank().value, after_a_tenth,
             at_the_end);
  constexpr std::size_t kSlackKib = 4096;
  if (!kIsSanitized && at_the_end > after_a_tenth + kSlackKib) throw std::runtime_error("memory grows");
}

std::uint64_t transmitted_bytes() {
  std::uint64_t bytes = 0;
  std::ifstream("/sys/class/net/eth0/statistics/tx_bytes") >> bytes;
  return bytes;
}

/// Sums a value of each rank over all ranks.
std::uint64_t sum_over(World& world, std::uint64_t mine) {
  std::uint64_t sum = 0;
  for (const auto& bytes : world.all_gather(std::as_bytes(std::span(&mine, 1)))) {
    std::uint64_t theirs = 0;
    std::memcpy(&theirs, bytes.data(), sizeof(theirs));
    sum += theirs;
  }
  return sum;
}

/// Four of 32 experts for each token; different ones on each rank.
std::vector<std::int32_t> random_experts(const World& world, std::int64_t tokens) {
  std::mt19937 random(static_cast<unsigned>(world.rank().value));
  std::vector<std::int32_t> experts;
  for (std::int64_t token = 0; token < tokens; ++token) {
    std::vector<std::int32_t> all(32);
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), random);
    experts.insert(experts.end(), all.begin(), all.begin() + 4);
  }
  return experts;
}

/// Repeats one random dispatch.
class Dispatches {
 public:
  explicit Dispatches(World& world)
      : experts_(random_experts(world, kTokens)),
        x_(static_cast<std::size_t>(kTokens * kHidden), 1.0f),
        engine_(world, {.hidden = kHidden, .dtype = f32}),
        plan_(engine_.plan({.experts = experts_, .weights = {}, .topk = 4}, ExpertMap::contiguous(32, world.size()))) {}

  void run() { (void)engine_.dispatch(plan_, borrow(x_.data(), f32, kTokens, kHidden)).wait(); }
  [[nodiscard]] std::uint64_t bytes_between_nodes() const {
    return plan_.traffic(kHidden * sizeof(float)).between_nodes_bytes;
  }

 private:
  static constexpr std::int64_t kTokens = 256, kHidden = 2048;
  std::vector<std::int32_t> experts_;
  std::vector<float> x_;
  Engine engine_;
  Plan plan_;
};

/// Prints the bytes that dispatches send between machines: according to the planner, to shunt's counter, and to the
/// interfaces' counters.
void count_bytes(World& world, std::uint64_t num_dispatches) {
  Dispatches dispatches(world);
  const bool is_first_of_machine = world.topology().ranks(world.topology().node(world.rank())).front() == world.rank();

  world.barrier();
  const std::uint64_t sent = world.bytes_sent_to_hosts();
  const std::uint64_t transmitted = transmitted_bytes();
  for (std::uint64_t i = 0; i < num_dispatches; ++i) dispatches.run();
  const std::uint64_t all_sent = sum_over(world, world.bytes_sent_to_hosts() - sent);
  const std::uint64_t all_transmitted = sum_over(world, is_first_of_machine ? transmitted_bytes() - transmitted : 0);
  const std::uint64_t planned = dispatches.bytes_between_nodes() * num_dispatches;
  if (world.rank() == RankId(0)) fmt::print("planned {} sent {} transmitted {}\n", planned, all_sent, all_transmitted);
}

/// The last rank sleeps before every operation, while the others send it rows.
void shuffle_slowly(World& world, std::uint64_t count) {
  Engine engine(world, {.hidden = 2048, .dtype = f32});
  const bool is_slow = world.rank() == RankId(world.size() - 1);
  for (std::uint64_t i = 0; i < count; ++i)
    round_trip(engine, world, 256, static_cast<std::uint32_t>(i),
               [&] { std::this_thread::sleep_for(std::chrono::milliseconds(is_slow ? 100 : 0)); });
}

void announce_start(const World& world) {
  if (world.rank() != RankId(0)) return;
  fmt::print("shuffling\n");
  std::fflush(stdout);
}

/// Shuffles until an Error is thrown.
[[noreturn]] void shuffle_forever(World& world) {
  Engine engine(world, {.hidden = 2048, .dtype = f32});
  for (std::uint32_t seed = 0;; ++seed) {
    round_trip(engine, world, 256, seed);
    if (seed == 0) announce_start(world);
  }
}

/// Dispatches until an Error is thrown, which is then during a dispatch.
[[noreturn]] void dispatch_forever(World& world) {
  Dispatches dispatches(world);
  for (bool is_first = true;; is_first = false) {
    dispatches.run();
    if (is_first) announce_start(world);
  }
}

/// Shuffles until an Error is thrown, then rebuilds the world and compares shuffles bit for bit with the reference.
void survive(World& world, std::uint64_t num_cases) {
  try {
    shuffle_forever(world);
  } catch (const Error& error) {
    fmt::print("rank {}: {}: {}\n", world.rank().value, to_string(error.code()), error.what());
    std::fflush(stdout);
  }
  const RankId former = world.rank();
  Rebuilt rebuilt = world.rebuild();
  world = std::move(rebuilt.world);
  run_cases(world, 0, num_cases);
  std::string all;
  for (const RankId survivor : rebuilt.survivors) all += fmt::format(" {}", survivor.value);
  fmt::print("rank {} goes on as rank {} of{}\n", former.value, world.rank().value, all);
}

void run(std::string_view what, std::uint64_t first, std::uint64_t second) {
  World world = World::from_environment();
  if (what == "cases") return run_cases(world, first, second);
  if (what == "soak") return soak(world, first);
  if (what == "bytes") return count_bytes(world, first);
  if (what == "slowly") return shuffle_slowly(world, first);
  if (what == "forever") shuffle_forever(world);
  if (what == "dispatches") dispatch_forever(world);
  if (what == "survive") return survive(world, first);
  if (what == "barrier" || what == "barrier-twice") {
    world.barrier();
    if (what == "barrier-twice") (void)World::from_environment();
    fmt::print("rank {} of {} on node {}\n", world.rank().value, world.size(),
               world.topology().node(world.rank()).value);
    return;
  }
  throw std::runtime_error(
      "expected barrier, barrier-twice, cases FIRST COUNT, soak COUNT, bytes COUNT, slowly COUNT, forever, dispatches "
      "or "
      "survive COUNT");
}

}  // namespace
}  // namespace shunt::test

int main(int argc, char** argv) {
  const auto argument = [&](int i) { return i < argc ? std::string_view(argv[i]) : std::string_view(); };
  const char* rank = std::getenv("RANK");
  try {
    shunt::test::run(argument(1), shunt::test::number(argument(2)), shunt::test::number(argument(3)));
    return 0;
  } catch (const shunt::Error& error) {
    fmt::print("rank {}: {}: {}\n", rank ? rank : "?", shunt::to_string(error.code()), error.what());
  } catch (const std::exception& error) {
    fmt::print("rank {}: exception: {}\n", rank ? rank : "?", error.what());
  }
  return 3;
}
