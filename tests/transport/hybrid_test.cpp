// What a rank of a world of several machines sends to ranks of others.
#include "transport/hybrid/hybrid_transport.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace shunt::test {
namespace {

using namespace std::chrono_literals;
using far::Kind;
using ::testing::ElementsAre;

/// Records what is sent. The peer is lost once it has received `left`.
class RecordingCarrier final : public far::Carrier {
 public:
  explicit RecordingCarrier(std::vector<Kind>& sent) : sent_(sent) {}

  [[nodiscard]] std::vector<std::byte> address() const override { return {}; }
  void connect(RankId, std::vector<far::Contact>, far::Receiver& receiver, std::shared_ptr<Wake> wake) override {
    receiver_ = &receiver;
    wake_ = std::move(wake);
  }
  void stop_accepting() override {}
  void send(std::unique_ptr<far::Packet> packet) override {
    sent_.push_back(packet->header.kind);
    if (sent_.back() == Kind::left) receiver_->on_lost(packet->to, "it ended");
  }
  void drop(RankId) override {}
  bool progress() override { return false; }
  void sleep() override {
    pollfd entry = {wake_->fd(), POLLIN, 0};
    (void)wait_ready(std::span(&entry, 1), Deadline::max());
    wake_->clear();
  }
  [[nodiscard]] std::int64_t num_unsent() override { return 0; }
  void close() override {}

 private:
  std::vector<Kind>& sent_;
  far::Receiver* receiver_ = nullptr;
  std::shared_ptr<Wake> wake_;
};

/// Ranks 0 and 1 of one machine, and rank 2 of another. What they have sent can be read once they have ended.
class TwoOfAMachine : public ::testing::Test {
 protected:
  void SetUp() override {
    Wiring wiring;
    for (const int host : {0, 0, 1}) wiring.add(HostId(host), NicId(host));
    const auto segments = LocalTransport::anonymous_segments(2);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      ranks_[rank] = std::make_unique<HybridTransport>(RankId(rank), wiring, segments,
                                                       std::make_unique<RecordingCarrier>(sent_[rank]),
                                                       std::vector{net::Contact{RankId(2)}}, 5s);
  }

  std::array<std::vector<Kind>, 2> sent_;
  std::array<std::unique_ptr<HybridTransport>, 2> ranks_;
};

// The rank that leaves sends a fault that another rank has reported, once.
TEST_F(TwoOfAMachine, ARankThatLeavesAfterAFaultSendsTheFaultBefore) {
  ranks_[0]->report(ErrorCode::peer_lost, RankId(2), "rank 2 ended");
  ranks_[1]->leave();
  ranks_[1].reset();
  EXPECT_THAT(sent_[1], ElementsAre(Kind::fault, Kind::left));
}

TEST_F(TwoOfAMachine, ARankThatLeavesWithoutAFaultSendsThatOnce) {
  ranks_[1]->leave();
  ranks_[1].reset();
  EXPECT_THAT(sent_[1], ElementsAre(Kind::left));
}

}  // namespace
}  // namespace shunt::test
