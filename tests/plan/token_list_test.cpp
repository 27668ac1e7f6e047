#include "plan/token_list.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <string>

#include "core/fail.hpp"
#include "shunt/error.hpp"

namespace shunt {
namespace {

using ::testing::HasSubstr;

constexpr std::uint32_t kOne = std::bit_cast<std::uint32_t>(1.0f);
constexpr std::uint32_t kNotFinite = std::bit_cast<std::uint32_t>(std::numeric_limits<float>::infinity());

// Two tokens for the three experts of the only rank: the first wants all, the second expert 1.
struct Sent {
  std::vector<std::uint32_t> words{3, 1, 0, 1, 2, 1, kOne, kOne, kOne, kOne};
  std::uint64_t topk = 3;
};

std::string refusal(const Sent& sent) {
  const std::array<std::uint32_t, 3> rows = {1, 2, 1};
  TokenList list(2, 4);
  std::copy(sent.words.begin(), sent.words.end(), list.words().begin());
  try {
    check_list(list, rows, sent.topk, RankId(5), RankId(0));
  } catch (const PeerError& error) {
    EXPECT_EQ(error.culprit(), RankId(5));
    return error.what();
  }
  return "accepted";
}

TEST(TokenList, AcceptsAValidOne) { EXPECT_EQ(refusal({}), "accepted"); }

TEST(TokenList, TokenHasOneToTopKEntries) {
  EXPECT_THAT(refusal({.topk = 2}), HasSubstr("entry 0 has an impossible length"));
  EXPECT_THAT(refusal({.words = {0, 1, 0, 1, 2, 1, kOne, kOne, kOne, kOne}}), HasSubstr("impossible length"));
}

TEST(TokenList, TokensStayInsideTheList) {
  EXPECT_THAT(refusal({.words = {3, 2, 0, 1, 2, 1, kOne, kOne, kOne, kOne}}), HasSubstr("entry 1 overruns"));
}

TEST(TokenList, ExpertsAreTheReceivers) {
  EXPECT_THAT(refusal({.words = {3, 1, 0, 1, 3, 1, kOne, kOne, kOne, kOne}}), HasSubstr("an expert that isn't there"));
}

TEST(TokenList, ExpertsOfATokenAscend) {
  EXPECT_THAT(refusal({.words = {3, 1, 0, 2, 1, 1, kOne, kOne, kOne, kOne}}), HasSubstr("entry 0 is out of order"));
}

TEST(TokenList, WeightsAreFinite) {
  EXPECT_THAT(refusal({.words = {3, 1, 0, 1, 2, 1, kOne, kOne, kOne, kNotFinite}}), HasSubstr("entry 1 has a weight"));
}

TEST(TokenList, AgreesWithTheCounts) {
  EXPECT_THAT(refusal({.words = {3, 1, 0, 1, 2, 2, kOne, kOne, kOne, kOne}}), HasSubstr("contradicts its counts"));
  EXPECT_THAT(refusal({.words = {1, 1, 0, 1, 2, 1, kOne, kOne, kOne, kOne}}), HasSubstr("contradicts its counts"));
}

}  // namespace
}  // namespace shunt
