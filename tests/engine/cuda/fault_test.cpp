// The Errors that the host makes of a device's records.
#include "engine/cuda/fault.hpp"

#include <gtest/gtest.h>

#include <tuple>

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

/// Those that are hard to bring about on a device; the others are in engine/fault_test.cpp.
TEST(DeviceFaultRecord, BecomesAnErrorThatNamesRankAndCause) {
  const std::uint64_t plan = kPlan.packed();
  const std::vector<std::tuple<FaultRecord, ErrorCode, std::string>> records = {
      {{FaultRecord::routing, 5, plan, 0, BadEntry{3, -77}.packed()},
       ErrorCode::invalid_argument,
       "rank 5: plan of 'layer 4': token 3: expert -77 is out of range"},
      {{FaultRecord::mismatch, 1, plan, BadEntry{16'777'215, 4096}.packed(), Tag::at(Phase::refused, plan)},
       ErrorCode::peer_failed,
       "rank 5: plan of 'layer 4': rank 1 failed: token 16777215: expert 4096 is out of range"},
      {{FaultRecord::mismatch, 1, plan, 0, Tag::at(Phase::end, plan)},
       ErrorCode::mismatch,
       "rank 5 called plan of 'layer 4', rank 1 plan in a graph that does not hold the same"},
      {{FaultRecord::deadline, 2, plan, 7, 6},
       ErrorCode::deadline,
       "rank 5: plan of 'layer 4': rank 2 did not reach the barrier within 300 ms; it was at barrier 6 of 7"}};
  ASSERT_NO_THROW(World::spawn(1, [&](World& world) {
    std::vector<std::uint32_t> words(device::WatchdogWords::num_words(1));
    device::Watchdog watchdog;
    const device::Watchdog::Watch watch(watchdog, world.impl(), {words.data()});
    const std::chrono::milliseconds deadline(300);
    for (const auto& [record, code, text] : records)
      require_error([&, &found = record] { device::throw_if_faulty(found, watch, RankId(5), deadline, "layer 4"); },
                    code, text);
  }));
}

}  // namespace
}  // namespace shunt::test
