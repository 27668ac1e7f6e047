// The last moments of a rank between hosts: what others do meanwhile, and what is still on its way.
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

// Its link may hear of the fault when its transport has half gone, and may be told to tell others.
TEST(Teardown, OfOneRankWhileAnotherReportsAFaultHarmsNobody) {
  for (int round = 0; round < 40; ++round) {
    auto ends = join_hosts(far::Network::tcp, 2, 5000ms);
    const std::jthread leaving([&] { ends[0].reset(); });
    std::this_thread::sleep_for(50us * round);
    ends[1]->report(ErrorCode::peer_failed, kPeer, "rank 1 tripped");
    EXPECT_TRUE(ends[1]->fault());
  }
}

// A slow peer takes twice as long as a silent one is waited for.
TEST(Teardown, WaitsWhileASlowNetworkStillMovesBytes) {
  constexpr int kNumSlices = 60;
  constexpr std::size_t kSliceBytes = 512 << 10;
  RawPeer peer(far::Network::tcp);
  auto end = std::make_unique<HonestEnd>(far::Network::tcp, peer.address(), 100ms);
  peer.connect(end->address());
  peer.send(RawPeer::Kind::ping);  // returns when they are connected
  for (int i = 0; i < kNumSlices; ++i)
    end->link().slices().post(kPeer, end->link().slices().open(kSliceBytes).value(), kSliceBytes, {});
  const std::jthread leaving([&] { end.reset(); });
  const auto guard = std::chrono::steady_clock::now() + 60s;
  // Slices take another way than the farewell.
  for (int heard = 0; peer.num_heard(RawPeer::Kind::left) == 0 || heard < kNumSlices;) {
    peer.progress();
    if (const int now = peer.num_heard(RawPeer::Kind::slice); now > heard) std::this_thread::sleep_for(70ms);
    heard = peer.num_heard(RawPeer::Kind::slice);
    ASSERT_LT(std::chrono::steady_clock::now(), guard) << "heard " << heard << " slices and no farewell";
  }
  EXPECT_EQ(peer.num_heard(RawPeer::Kind::slice), kNumSlices);
}

// Else the last words, a fault among them, could be lost with the connection.
TEST(Teardown, WaitsUntilThePeerHasHeardTheFarewell) {
  RawPeer peer(far::Network::tcp);
  auto end = std::make_unique<HonestEnd>(far::Network::tcp, peer.address(), 100ms);
  peer.connect(end->address());
  peer.send(RawPeer::Kind::ping);
  peer.send(RawPeer::Kind::alive);
  end->link().greet_all(30s, [] { return std::nullopt; });
  std::atomic<bool> is_gone = false;
  const std::jthread leaving([&] {
    end.reset();
    is_gone = true;
  });
  while (peer.num_heard(RawPeer::Kind::left) == 0) peer.progress();
  std::this_thread::sleep_for(200ms);
  EXPECT_FALSE(is_gone) << "it does not know yet that its farewell was heard";
  peer.send(RawPeer::Kind::parted);
  while (!is_gone) peer.progress();
}

}  // namespace
}  // namespace shunt::test
