// The protocol of meetings on one device: two ranks are two blocks of one kernel.
#include <gtest/gtest.h>

#include "support/cuda/device.hpp"
#include "transport/cuda/protocol_kernels.hpp"

namespace shunt::test {
namespace {

TEST(DeviceMeeting, WhatIsSentBeforeIsSeenAfter) {
  SHUNT_NEEDS_DEVICE();
  const ProtocolResult result = send_between_blocks({.rounds = 2000, .words = 4096, .deadline_ms = 10'000});
  EXPECT_EQ(result.wrong_words, 0u);
  EXPECT_EQ(result.fault.cause, device::FaultRecord::none);
}

TEST(DeviceMeeting, MayBeHeldInTwoParts) {
  SHUNT_NEEDS_DEVICE();
  const ProtocolResult result =
      send_between_blocks({.rounds = 2000, .words = 4096, .deadline_ms = 10'000, .in_parts = true});
  EXPECT_EQ(result.wrong_words, 0u);
  EXPECT_EQ(result.fault.cause, device::FaultRecord::none);
}

TEST(DeviceMeeting, WhoIsMissingIsNamed) {
  SHUNT_NEEDS_DEVICE();
  const ProtocolResult result =
      send_between_blocks({.rounds = 5, .words = 16, .deadline_ms = 50, .sender_stops_at = 3});
  EXPECT_EQ(result.fault.cause, device::FaultRecord::deadline);
  EXPECT_EQ(result.fault.peer, 0);
  EXPECT_EQ(result.fault.expected, 4u);
  EXPECT_EQ(result.fault.seen, 3u);
}

// Were the host not asked, the test would time out.
TEST(DeviceMeeting, WhoIsLostIsNotWaitedForUntilTheDeadline) {
  SHUNT_NEEDS_DEVICE();
  const ProtocolResult result = send_between_blocks(
      {.rounds = 5, .words = 16, .deadline_ms = 3'600'000, .sender_stops_at = 0, .sender_is_lost = true});
  EXPECT_EQ(result.fault.cause, device::FaultRecord::lost);
  EXPECT_EQ(result.fault.peer, 0);
  EXPECT_EQ(result.fault.expected, 1u);
  EXPECT_EQ(result.fault.seen, 0u);
  EXPECT_TRUE(result.waits);
}

TEST(DeviceMeeting, WhoComesForSomethingElseIsNamed) {
  SHUNT_NEEDS_DEVICE();
  const ProtocolResult result = send_between_blocks({.rounds = 5, .words = 16, .deadline_ms = 50, .sender_tag = 99});
  EXPECT_EQ(result.fault.cause, device::FaultRecord::mismatch);
  EXPECT_EQ(result.fault.peer, 0);
  EXPECT_EQ(result.fault.seen, 99u);
}

}  // namespace
}  // namespace shunt::test
