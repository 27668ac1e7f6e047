// Starts ranks as child processes and supervises them.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "shunt/error.hpp"
#include "shunt/ids.hpp"

namespace shunt::shm {

/// The end of a rank that failed.
struct Failure {
  RankId rank;
  ErrorCode code;
  std::string text;
  bool is_root = false;     ///< this rank failed by itself, not because of another one
  bool is_handled = false;  ///< the world failed, but the body caught that and returned
};

/// Runs in the rank's process and returns how it failed; nothing: it did not. It calls `joined` once faults of its
/// peers can reach it.
using RankBody =
    std::function<std::optional<Failure>(RankId rank, const std::string& job, const std::function<void()>& joined)>;

/// Forks one process per rank and runs the body there; `job` names a new world. Returns when all have ended. If one
/// fails, those that have joined get `grace` to end by themselves and are then killed, the others at once. If one
/// handles a failure, the others have no limit. A rank that stays stopped for `grace` after another one has ended is
/// killed. A rank whose process ends before its body has
/// returned has failed. If this process dies, they die with it. Returns nothing if every rank has ended well or handled
/// the failure.
std::vector<Failure> launch(std::int32_t num_ranks, const RankBody& body, std::chrono::milliseconds grace);

}  // namespace shunt::shm
