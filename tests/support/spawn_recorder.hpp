// Jobs of processes, with the Error that each rank received.
#pragma once

#include <array>
#include <functional>
#include <string>

#include "shunt/error.hpp"
#include "shunt/world.hpp"
#include "support/child_process.hpp"

namespace shunt::test {

/// How a call of World::spawn ended.
struct SpawnEnd {
  bool threw = false;
  ErrorCode code = ErrorCode::internal;
  std::string text;
};

class SpawnRecorder {
 public:
  /// Runs the body on each rank, and records what it throws.
  SpawnEnd spawn(std::int32_t num_ranks, const std::function<void(World&)>& body, const Environment& environment);

  /// Fails the test unless every rank but the culprit received an Error with this code whose text has the culprit and
  /// all `words`.
  void expect_all_received(RankId culprit, ErrorCode code, const std::vector<std::string>& words) const;

 private:
  struct Record {
    bool has_error = false;
    bool has_failure = false;  // of an expectation in the rank's process
    ErrorCode code = ErrorCode::internal;
    std::array<char, 500> text = {};
  };
  std::int32_t num_ranks_ = 0;
  SharedAcrossForks<std::array<Record, 8>> records_;
};

/// Short limits, so that faults are noticed in a moment.
Environment hasty();

}  // namespace shunt::test
