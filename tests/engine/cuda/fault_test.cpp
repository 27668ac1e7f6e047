// The Errors that the host makes of a device's records.
#include "engine/cuda/fault.hpp"

#include <gtest/gtest.h>

#include "engine/cuda/tag.hpp"
#include "shunt/world.hpp"
#include "support/require_error.hpp"

namespace shunt::test {
namespace {

using device::BadEntry;
using device::FaultRecord;
using device::Phase;
using device::Tag;

constexpr Tag kPlan{OpKind::plan, Phase::begin, 0x1234'5678'9abc};

void require_thrown(const FaultRecord& record, ErrorCode code, const std::string& text) {
  World::spawn(1, [&](World& world) {
    std::vector<std::uint32_t> words(device::WatchdogWords::num_words(1));
    device::Watchdog watchdog;
    const device::Watchdog::Watch watch(watchdog, world.impl(), {words.data()});
    require_error([&] { device::throw_if_faulty(record, watch, RankId(5), std::chrono::milliseconds(300), "layer 4"); },
                  code, text);
  });
}

TEST(DeviceFaultRecord, ARoutingThatMakesNoSenseIsNamedOnTheRankThatBroughtIt) {
  ASSERT_NO_THROW(require_thrown({FaultRecord::routing, 5, kPlan.packed(), 0, BadEntry{3, -77}.packed()},
                                 ErrorCode::invalid_argument,
                                 "rank 5: plan of 'layer 4': token 3: expert -77 is out of range"));
}

TEST(DeviceFaultRecord, ARankThatRefusesIsNamedWithItsReason) {
  const std::uint64_t refused = Tag::at(Phase::refused, kPlan.packed());
  ASSERT_NO_THROW(require_thrown(
      {FaultRecord::mismatch, 1, kPlan.packed(), BadEntry{16'777'215, 4096}.packed(), refused}, ErrorCode::peer_failed,
      "rank 5: plan of 'layer 4': rank 1 failed: token 16777215: expert 4096 is out of range"));
}

TEST(DeviceFaultRecord, ARankThatDoesSomethingElseIsNamed) {
  const Tag other{OpKind::dispatch, Phase::begin, 1};
  ASSERT_NO_THROW(require_thrown({FaultRecord::mismatch, 1, kPlan.packed(), 0, other.packed()}, ErrorCode::mismatch,
                                 "rank 5 called plan of 'layer 4', rank 1 dispatch"));
}

TEST(DeviceFaultRecord, ARankThatDoesTheSameOtherwiseIsNamed) {
  const auto throws = [](const Tag& other, const std::string& how) {
    require_thrown({FaultRecord::mismatch, 1, kPlan.packed(), 0, other.packed()}, ErrorCode::mismatch,
                   "rank 5 called plan of 'layer 4', rank 1 plan " + how);
  };
  ASSERT_NO_THROW(throws({OpKind::plan, Phase::begin, 1}, "with other options, or of another plan"));
  ASSERT_NO_THROW(throws({OpKind::plan, Phase::end, kPlan.plan_hash}, "in a graph that does not hold the same"));
}

TEST(DeviceFaultRecord, ARankThatDoesNotComeIsNamed) {
  ASSERT_NO_THROW(require_thrown(
      {FaultRecord::deadline, 2, kPlan.packed(), 7, 6}, ErrorCode::deadline,
      "rank 5: plan of 'layer 4': rank 2 did not reach the barrier within 300 ms; it was at barrier 6 of 7"));
}

}  // namespace
}  // namespace shunt::test
