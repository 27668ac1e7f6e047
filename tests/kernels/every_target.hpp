// Runs a test on each SIMD target that this machine supports.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdint>
#include <string>

namespace shunt::test {

/// During its lifetime, kernels run on one target.
class OnTarget {
 public:
  explicit OnTarget(std::int64_t target) { hwy::SetSupportedTargetsForTest(target); }
  ~OnTarget() { hwy::SetSupportedTargetsForTest(0); }
  OnTarget(const OnTarget&) = delete;
  OnTarget& operator=(const OnTarget&) = delete;
};

/// Records the names of the targets as a property of the test.
template <class Claim>
void on_every_target(const Claim& claim) {
  std::string names;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    names += std::string(names.empty() ? "" : " ") + hwy::TargetName(target);
    SCOPED_TRACE(hwy::TargetName(target));
    const OnTarget scope(target);
    claim();
  }
  testing::Test::RecordProperty("targets", names);
}

}  // namespace shunt::test
