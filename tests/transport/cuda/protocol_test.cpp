// Barriers on one device: two ranks are two blocks of one kernel.
#include <gtest/gtest.h>

#include "support/cuda/device.hpp"
#include "transport/cuda/protocol_kernels.hpp"

namespace shunt::test {
namespace {

TEST(DeviceBarrier, WhatIsSentBeforeIsSeenAfter) {
  SHUNT_NEEDS_DEVICE();
  const ProtocolResult result = send_between_blocks({.rounds = 2000, .words = 4096, .deadline_ms = 10'000});
  EXPECT_EQ(result.wrong_words, 0u);
  EXPECT_EQ(result.fault.cause, device::FaultRecord::none);
}

TEST(DeviceBarrier, MayBeHeldInTwoParts) {
  SHUNT_NEEDS_DEVICE();
  const ProtocolResult result =
      send_between_blocks({.rounds = 2000, .words = 4096, .deadline_ms = 10'000, .in_parts = true});
  EXPECT_EQ(result.wrong_words, 0u);
  EXPECT_EQ(result.fault.cause, device::FaultRecord::none);
}

TEST(DeviceBarrier, WhoIsMissingIsNamed) {
  SHUNT_NEEDS_DEVICE();
  const ProtocolResult result =
      send_between_blocks({.rounds = 5, .words = 16, .deadline_ms = 50, .sender_stops_at = 3});
  EXPECT_EQ(result.fault.cause, device::FaultRecord::deadline);
  EXPECT_EQ(result.fault.peer, 0);
  EXPECT_EQ(result.fault.expected, 4u);
  EXPECT_EQ(result.fault.seen, 3u);
}

// Were the host not asked, the test would time out.
TEST(DeviceBarrier, WhoIsLostIsNotWaitedForUntilTheDeadline) {
  SHUNT_NEEDS_DEVICE();
  const ProtocolResult result = send_between_blocks(
      {.rounds = 5, .words = 16, .deadline_ms = 3'600'000, .sender_stops_at = 0, .sender_is_lost = true});
  EXPECT_EQ(result.fault.cause, device::FaultRecord::lost);
  EXPECT_EQ(result.fault.peer, 0);
  EXPECT_EQ(result.fault.expected, 1u);
  EXPECT_EQ(result.fault.seen, 0u);
  EXPECT_TRUE(result.waits);
}

TEST(DeviceBarrier, WhoComesForSomethingElseIsNamed) {
  SHUNT_NEEDS_DEVICE();
  const ProtocolResult result = send_between_blocks({.rounds = 5, .words = 16, .deadline_ms = 50, .sender_tag = 99});
  EXPECT_EQ(result.fault.cause, device::FaultRecord::mismatch);
  EXPECT_EQ(result.fault.peer, 0);
  EXPECT_EQ(result.fault.seen, 99u);
}

}  // namespace
}  // namespace shunt::test
