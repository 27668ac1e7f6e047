#include "cli/shuffle/config.hpp"

#include <algorithm>

#include "core/fail.hpp"
#include "shunt/routing.hpp"

namespace shunt::cli {

void ShuffleConfig::check() const {
  const auto demand = [](bool holds, const char* option, const std::string& expected) {
    if (!holds) fail(ErrorCode::invalid_argument, "{}: expected {}", option, expected);
  };
  constexpr std::int32_t kMostRanks = 1024;
  demand(ranks >= 1 && ranks <= kMostRanks, "--ranks", fmt::format("1 to {} on one host", kMostRanks));
  demand(nodes >= 1 && nodes <= ranks, "--nodes", fmt::format("1 to {} (the number of ranks)", ranks));
  demand(tokens >= 0, "--tokens", "at least 0");
  demand(hidden >= 1, "--hidden", "at least 1");
  demand(experts >= 1, "--experts", "at least 1");
  demand(topk >= 1 && topk <= std::min(experts, Routing::kMaxTopK), "--topk",
         fmt::format("1 to {} (experts, and at most {})", std::min(experts, Routing::kMaxTopK), Routing::kMaxTopK));
  demand(iterations >= 1, "--iterations", "at least 1");
  demand(warmup >= 0, "--warmup", "at least 0");
  for (const std::string& system : systems)
    demand(system == "shunt" || system == "mpi_alltoallv" || system == "unfused", "--systems",
           fmt::format("shunt, mpi_alltoallv or unfused, not '{}'", system));
  demand(wants("shunt"), "--systems", "shunt among them, as the others are compared with it");
}

bool ShuffleConfig::wants(const std::string& system) const {
  return std::find(systems.begin(), systems.end(), system) != systems.end();
}

nlohmann::ordered_json ShuffleConfig::to_json(const std::string& world_name) const {
  return {{"ranks", ranks},     {"nodes", nodes},  {"tokens", tokens},          {"hidden", hidden},
          {"experts", experts}, {"topk", topk},    {"dtype", to_string(dtype)}, {"layout", to_string(layout)},
          {"routing", routing}, {"device", "cpu"}, {"world", world_name},       {"iterations", iterations},
          {"seed", seed}};
}

}  // namespace shunt::cli
