// The end of a rank of a world of several machines: what other ranks do meanwhile, and packets on their way.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "support/hosts_of_threads.hpp"
#include "support/link_pair.hpp"
#include "support/require.hpp"

namespace shunt::test {
namespace {

using namespace std::chrono_literals;

constexpr RankId kPeer(1);

// The fault may reach its link while its transport is being destroyed.
TEST(Teardown, OfOneRankWhileAnotherReportsAFaultIsSafe) {
  for (int round = 0; round < 40; ++round) {
    auto ends = join_hosts(far::Network::tcp, 2, 5000ms);
    const std::jthread leaving([&] { ends[0].reset(); });
    std::this_thread::sleep_for(50us * round);
    ends[1]->report(ErrorCode::peer_failed, kPeer, "rank 1 tripped");
    EXPECT_TRUE(ends[1]->fault());
  }
}

// A slow peer takes twice as long as the limit for a silent one.
TEST(Teardown, WaitsWhileASlowNetworkStillMovesBytes) {
  constexpr int kNumSlices = 60;
  constexpr std::size_t kSliceBytes = 512 << 10;
  RawPeer peer(far::Network::tcp);
  auto end = std::make_unique<LinkEnd>(far::Network::tcp, peer.address(), 100ms);
  peer.connect(end->address());
  peer.send(RawPeer::Kind::ping);  // returns when they are connected
  for (int i = 0; i < kNumSlices; ++i)
    end->link().slices().post(kPeer, end->link().slices().open(kSliceBytes).value(), kSliceBytes, {});
  const std::jthread leaving([&] { end.reset(); });
  const auto guard = std::chrono::steady_clock::now() + 60s;
  // Slices travel on other connections than `left`.
  for (int received = 0; peer.num_received(RawPeer::Kind::left) == 0 || received < kNumSlices;) {
    peer.progress();
    if (const int now = peer.num_received(RawPeer::Kind::slice); now > received) std::this_thread::sleep_for(70ms);
    received = peer.num_received(RawPeer::Kind::slice);
    ASSERT_LT(std::chrono::steady_clock::now(), guard) << received << " slices and no `left`";
  }
  EXPECT_EQ(peer.num_received(RawPeer::Kind::slice), kNumSlices);
}

// Else the last packets, a fault among them, could be lost with the connection.
TEST(Teardown, WaitsUntilThePeerAcknowledgesLeft) {
  RawPeer peer(far::Network::tcp);
  auto end = std::make_unique<LinkEnd>(far::Network::tcp, peer.address(), 100ms);
  peer.connect(end->address());
  peer.send(RawPeer::Kind::ping);
  peer.send(RawPeer::Kind::alive);
  end->connect_all();
  std::atomic<bool> is_gone = false;
  const std::jthread leaving([&] {
    end.reset();
    is_gone = true;
  });
  while (peer.num_received(RawPeer::Kind::left) == 0) peer.progress();
  std::this_thread::sleep_for(200ms);
  EXPECT_FALSE(is_gone) << "it has no acknowledgement yet";
  peer.send(RawPeer::Kind::left_ack);
  while (!is_gone) peer.progress();
}

}  // namespace
}  // namespace shunt::test
