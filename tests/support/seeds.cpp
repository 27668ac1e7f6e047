#include "support/seeds.hpp"

#include <cstdlib>
#include <optional>
#include <string>

#include "support/random_case.hpp"

namespace shunt::test {
namespace {

constexpr std::uint64_t kCasesPerWorld = 16;

std::optional<std::uint64_t> variable(const char* name) {
  const char* text = std::getenv(name);
  return text ? std::optional(std::stoull(text)) : std::nullopt;
}

}  // namespace

Topology topology_of(std::uint64_t seed) {
  std::mt19937_64 generator(seed / kCasesPerWorld);
  return random_case(generator).topology;
}

std::uint64_t share_of_cases(std::uint64_t count) { return count * variable("SHUNT_TEST_PERCENT").value_or(100) / 100; }

std::vector<SeedsOfWorld> choose_seeds(std::uint64_t first_world, std::uint64_t num_cases) {
  if (const auto seed = variable("SHUNT_TEST_SEED")) return {{topology_of(*seed), {*seed}}};
  const std::uint64_t wanted = share_of_cases(num_cases);
  std::vector<SeedsOfWorld> worlds;
  for (std::uint64_t world = 0; world * kCasesPerWorld < wanted; ++world) {
    const std::uint64_t first = (first_world + world) * kCasesPerWorld;
    worlds.push_back({topology_of(first), {}});
    for (std::uint64_t i = 0; i < kCasesPerWorld; ++i) worlds.back().seeds.push_back(first + i);
  }
  return worlds;
}

}  // namespace shunt::test
