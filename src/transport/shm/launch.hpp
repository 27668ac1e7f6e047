// Starts ranks as child processes and watches over them.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "shunt/error.hpp"
#include "shunt/ids.hpp"

namespace shunt::shm {

/// How a rank ended that did not end well.
struct Failure {
  RankId rank;
  ErrorCode code;
  std::string text;
  bool is_root = false;  ///< this rank failed by itself, not because of another one
};

/// What a rank's body says of its end; nothing: all went well.
using RankBody = std::function<std::optional<Failure>(RankId rank, const std::string& job)>;

/// Forks one process per rank and runs the body there; `job` names a new world. Returns when all have ended. If one fails,
/// the others get `grace` to end by themselves and are then killed. If this process dies, they die with it.
std::vector<Failure> launch(std::int32_t num_ranks, const RankBody& body, std::chrono::milliseconds grace);

}  // namespace shunt::shm
