// What the ranks of a failing job were told.
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

/// Runs jobs of processes and remembers the Error that each rank saw.
class Survivors {
 public:
  /// Each rank runs the body; what it throws is noted and thrown on.
  SpawnEnd spawn(std::int32_t num_ranks, const std::function<void(World&)>& body, const Environment& environment);

  /// Fails the test unless every rank but the culprit was told of it with this code, and its text holds all `words`.
  void expect_all_were_told(RankId culprit, ErrorCode code, const std::vector<std::string>& words) const;

 private:
  struct Note {
    bool told = false;
    bool has_failure = false;  // of an expectation, which the rank's process alone would know of
    ErrorCode code = ErrorCode::internal;
    std::array<char, 500> text = {};
  };
  std::int32_t num_ranks_ = 0;
  SharedAcrossForks<std::array<Note, 8>> notes_;
};

/// Short limits, so that faults are noticed in a moment.
Environment hasty();

}  // namespace shunt::test
