// Barriers on one device: two ranks are two blocks of one kernel. What they report is in engine/fault_test.cpp.
#include <gtest/gtest.h>

#include "support/cuda/device.hpp"
#include "transport/cuda/protocol_kernels.hpp"

namespace shunt::test {
namespace {

TEST(DeviceBarrier, WhatIsSentBeforeIsSeenAfterItsWholeOrItsTwoParts) {
  SHUNT_NEEDS_DEVICE();
  for (const bool in_parts : {false, true}) {
    const ProtocolResult result = send_between_blocks({.rounds = 2000, .words = 4096, .in_parts = in_parts});
    EXPECT_EQ(result.wrong_words, 0u);
    EXPECT_EQ(result.fault.cause, device::FaultRecord::none);
  }
}

}  // namespace
}  // namespace shunt::test
