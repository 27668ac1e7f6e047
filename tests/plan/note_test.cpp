// What a far rank tells besides its counts is checked too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/fail.hpp"
#include "plan/planner.hpp"
#include "shunt/error.hpp"

namespace shunt {
namespace {

constexpr std::int32_t kMaxTokens = 3;
const PlanOptions kPadded = {.layout = Layout::padded, .max_tokens = kMaxTokens};

/// Two ranks on two hosts, with two experts each and a token that goes nowhere.
class Notes : public ::testing::Test {
 protected:
  [[nodiscard]] Planner planner(std::int32_t rank) const {
    return {routing_, map_, topology_, RankId(rank), kPadded, {.hidden = 8}, wiring_};
  }
  /// What rank 1 tells rank 0; the last words are its rows for each of rank 0's experts.
  [[nodiscard]] std::vector<std::uint32_t> note() const { return planner(1).notes().front().words; }
  static void accept(Planner& planner, const std::vector<std::uint32_t>& words) {
    planner.accept_note(RankId(1), std::as_bytes(std::span(words)));
  }

  std::vector<std::int32_t> experts_ = {-1};
  Routing routing_ = {experts_, {}, 1};
  ExpertMap map_ = ExpertMap::contiguous(4, 2);
  Topology topology_ = Topology::virtual_nodes(2, 2);
  Wiring wiring_ = {{HostId(0), HostId(1)}, {NicId(0), NicId(1)}};
};

TEST_F(Notes, MayTellOfAsManyRowsAsAreAllowed) {
  Planner reader = planner(0);
  ASSERT_EQ(reader.note_senders(), std::vector{RankId(1)});
  auto words = note();
  words.back() = kMaxTokens;
  accept(reader, words);
  EXPECT_EQ(reader.finish()->in_flows.front().source_counts, (std::vector<std::int32_t>{0, kMaxTokens}));
}

TEST_F(Notes, ThatTellOfMoreRowsThanAreAllowedAreRefused) {
  for (const std::uint32_t count : {kMaxTokens + 1u, 0xffff'ffffu}) {
    Planner reader = planner(0);
    (void)reader.note_senders();
    auto words = note();
    words.back() = count;
    try {
      accept(reader, words);
      FAIL() << "accepted " << count;
    } catch (const PeerError& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 1 told rank 0 of"));
    }
  }
}

TEST_F(Notes, AreNotLongerThanTheirReaderExpects) {
  Planner reader = planner(0);
  (void)reader.note_senders();
  EXPECT_LE(note().size() * sizeof(std::uint32_t), reader.most_note_bytes(RankId(1)));
}

}  // namespace
}  // namespace shunt
