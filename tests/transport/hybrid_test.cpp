// The end of a rank of a world of several machines.
#include "transport/hybrid/hybrid_transport.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "support/eventually.hpp"
#include "support/loopback_ranks.hpp"

namespace shunt::test {
namespace {

using far::Kind;

/// Rank 0 leaves; rank 2 of its machine has reported a fault before, or none. What rank 1 of another machine receives.
std::vector<Kind> sent_on_leaving(bool has_fault) {
  RawPeer peer(far::Network::tcp);
  auto carrier = carrier_on_loopback(far::Network::tcp);
  const auto address = carrier->address();
  Wiring wiring;
  for (const int host : {0, 1, 0}) wiring.add(HostId(host), NicId(host));
  const auto segments = LocalTransport::anonymous_segments(2);
  LocalTransport other(RankId(2), segments, {RankId(0), RankId(2)});
  auto rank = std::make_unique<HybridTransport>(RankId(0), wiring, segments, std::move(carrier),
                                                std::vector{contact_of_peer(peer.address())}, std::chrono::seconds(5));
  peer.connect(address);
  if (has_fault) other.report(ErrorCode::peer_lost, RankId(1), "rank 1 ended");
  rank->leave();
  const auto has_left = std::async(std::launch::async, [&] { rank.reset(); });
  const auto is_over = [&] {
    peer.progress();
    return peer.num_received(Kind::left) > 0;
  };
  EXPECT_TRUE(eventually(is_over));
  peer.send(Kind::left_ack);
  return peer.received();
}

TEST(LeavingRank, SendsThatOnceAndAFaultOfAnotherRankBefore) {
  EXPECT_THAT(sent_on_leaving(true), ::testing::ElementsAre(Kind::fault, Kind::left));
  EXPECT_THAT(sent_on_leaving(false), ::testing::ElementsAre(Kind::left));
}

// The fault may reach its link while its transport is being destroyed.
TEST(LeavingRank, MayBeReachedByAFaultMeanwhile) {
  for (int round = 0; round < 40; ++round) {
    auto ends = join_hosts(far::Network::tcp, 2, std::chrono::seconds(5));
    const std::jthread leaving([&] { ends[0].reset(); });
    std::this_thread::sleep_for(std::chrono::microseconds(50 * round));
    ends[1]->report(ErrorCode::peer_failed, RankId(1), "rank 1 tripped");
    EXPECT_TRUE(ends[1]->fault());
  }
}

}  // namespace
}  // namespace shunt::test
