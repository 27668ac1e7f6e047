// What a rank of several hosts tells those of others.
#include "transport/hybrid/hybrid_transport.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <stdexcept>
#include <string>
#include <vector>

namespace shunt::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Writes down what is to be told.
class Notes final : public FarLink {
 public:
  explicit Notes(std::vector<std::string>& told) : told_(told) {}

  Post post(RankId, std::span<const std::byte>) override { return Post::posted; }
  bool poll(Message&) override { return false; }
  void suspect(RankId) override {}
  [[nodiscard]] bool has_left(RankId) const override { return false; }
  [[nodiscard]] bool is_gone(RankId) const override { return false; }
  [[nodiscard]] SliceLink& slices() override { throw std::logic_error("there are none"); }
  void flood(const Fault& fault) override { told_.push_back(fault.text); }
  void leave() override { told_.emplace_back("left"); }

 private:
  std::vector<std::string>& told_;
};

/// Ranks 0 and 1 of one host, and rank 2 of another.
class TwoOfAHost : public ::testing::Test {
 protected:
  void SetUp() override {
    Wiring wiring;
    for (const int host : {0, 0, 1}) wiring.add(HostId(host), NicId(host));
    const auto segments = LocalTransport::anonymous_segments(2);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      auto near = std::make_shared<LocalTransport>(RankId(rank), segments, std::vector{RankId(0), RankId(1)});
      ranks_[rank] = std::make_unique<HybridTransport>(RankId(rank), wiring, std::move(near),
                                                       [&](auto&&) { return std::make_unique<Notes>(told_[rank]); });
    }
  }

  std::array<std::vector<std::string>, 2> told_;
  std::array<std::unique_ptr<HybridTransport>, 2> ranks_;
};

TEST_F(TwoOfAHost, WhoLeavesAfterAFaultTellsWhyBefore) {
  ranks_[0]->report(ErrorCode::peer_lost, RankId(2), "rank 2 ended");
  EXPECT_THAT(told_[1], IsEmpty());  // by rank 0 only
  ranks_[1]->leave();
  ranks_[1].reset();
  EXPECT_THAT(told_[1], ElementsAre("rank 2 ended", "left"));
}

TEST_F(TwoOfAHost, WhoLeavesWithoutAFaultSaysSoOnce) {
  ranks_[1]->leave();
  ranks_[1].reset();
  EXPECT_THAT(told_[1], ElementsAre("left"));
}

}  // namespace
}  // namespace shunt::test
