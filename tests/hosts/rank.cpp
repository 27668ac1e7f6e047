// One rank of a job on several hosts, as a test script starts it. It joins the world that the environment describes,
// does what it is told, and says how that ended: status 0, or 3 with "rank R: CODE: TEXT" on the last line.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <fstream>
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

std::uint64_t number(std::string_view text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// Random shuffles, every bit of which is known.
void run_cases(World& world, std::uint64_t first, std::uint64_t count) {
  for (std::uint64_t seed = first; seed < first + count; ++seed)
    run_case(world, random_shuffle_case(seed, world.topology()));
}

std::size_t resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return number(line.substr(line.find_first_of("0123456789")));
  return 0;
}

/// Shuffles of changing shapes on one engine each; memory must be as large at the end as after a tenth of the way.
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
  if (at_the_end > after_a_tenth + kSlackKib) throw std::runtime_error("memory grows");
}

/// Until something breaks.
[[noreturn]] void shuffle_for_ever(World& world) {
  Engine engine(world, {.hidden = 2048, .dtype = f32});
  for (std::uint32_t seed = 0;; ++seed) {
    round_trip(engine, world, 256, seed);
    if (seed == 0 && world.rank() == RankId(0)) {
      fmt::print("shuffling\n");
      std::fflush(stdout);
    }
  }
}

void run(std::string_view what, std::uint64_t first, std::uint64_t second) {
  World world = World::from_environment();
  if (what == "cases") return run_cases(world, first, second);
  if (what == "soak") return soak(world, first);
  if (what == "forever") shuffle_for_ever(world);
  if (what == "meet") {
    world.barrier();
    fmt::print("rank {} of {} on node {}\n", world.rank().value, world.size(),
               world.topology().node(world.rank()).value);
    return;
  }
  throw std::runtime_error("expected meet, cases FIRST COUNT, soak COUNT or forever");
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
