// Validation of what a far rank sends besides its counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/fail.hpp"
#include "plan/planner.hpp"
#include "shunt/error.hpp"

namespace shunt {
namespace {

constexpr std::int32_t kMaxTokens = 3;
const PlanOptions kPadded = {.layout = Layout::padded, .max_tokens = kMaxTokens};

/// Two ranks on two machines, with two experts each and a token without experts.
class FarLists : public ::testing::Test {
 protected:
  [[nodiscard]] Planner planner(std::int32_t rank) const {
    return {routing_, map_, topology_, RankId(rank), kPadded, {.hidden = 8}, wiring_};
  }
  /// The far list from rank 1 to rank 0; the last words are its rows for each of rank 0's experts.
  [[nodiscard]] std::vector<std::uint32_t> far_list() const { return planner(1).far_lists().front().words; }
  static void accept(Planner& planner, const std::vector<std::uint32_t>& words) {
    planner.accept_far_list(RankId(1), std::as_bytes(std::span(words)));
  }

  std::vector<std::int32_t> experts_ = {-1};
  Routing routing_ = {experts_, {}, 1};
  ExpertMap map_ = ExpertMap::contiguous(4, 2);
  Topology topology_ = Topology::virtual_nodes(2, 2);
  Wiring wiring_ = {{HostId(0), HostId(1)}, {NicId(0), NicId(1)}};
};

TEST_F(FarLists, MayHoldAsManyRowsAsAreAllowed) {
  Planner reader = planner(0);
  ASSERT_EQ(reader.far_list_senders(), std::vector{RankId(1)});
  auto words = far_list();
  words.back() = kMaxTokens;
  accept(reader, words);
  EXPECT_EQ(reader.finish()->in_flows.front().source_counts, (std::vector<std::int32_t>{0, kMaxTokens}));
}

TEST_F(FarLists, WithMoreRowsThanAreAllowedAreRefused) {
  for (const std::uint32_t count : {kMaxTokens + 1u, 0xffff'ffffu}) {
    Planner reader = planner(0);
    (void)reader.far_list_senders();
    auto words = far_list();
    words.back() = count;
    try {
      accept(reader, words);
      FAIL() << "accepted " << count;
    } catch (const PeerError& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 1 sent rank 0 a count of"));
    }
  }
}

TEST_F(FarLists, AreNotLongerThanTheirReaderExpects) {
  Planner reader = planner(0);
  (void)reader.far_list_senders();
  EXPECT_LE(far_list().size() * sizeof(std::uint32_t), reader.most_far_list_bytes(RankId(1)));
}

}  // namespace
}  // namespace shunt
