#include "bench/shuffle/wire.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>

#include "shunt/error.hpp"

namespace shunt::bench {
namespace {

class WireOverLoopback : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { setenv("SHUNT_INTERFACE", "lo", 1); }
};

TEST_F(WireOverLoopback, MovesItsBytesBothWays) {
  World::spawn(3, [](World& world) {
    Wire wire(world, {0, 3 << 20, 5});
    wire.forward();
    wire.backward();
  });
}

// recv() returns 0 for a closed connection and leaves errno unchanged.
TEST_F(WireOverLoopback, ReportsAClosedConnectionAndNotAnEarlierErrno) {
  World::spawn(2, [](World& world) {
    // Rank 1 has bytes to send. If rank 0 had, the closed connection would be a reset.
    Wire wire(world, {world.rank() == RankId(1) ? 1000u : 0u, 0});
    if (world.rank() == RankId(1)) return;
    errno = ENOENT;
    try {
      wire.forward();
      FAIL() << "the peer has closed the connection";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::peer_lost);
      EXPECT_STREQ(error.what(), "wire: a peer closed its connection");
    }
  });
}

}  // namespace
}  // namespace shunt::bench
