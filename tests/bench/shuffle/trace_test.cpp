// `--routing trace:FILE` with routing traces; the text form is tested with the command line (cli_test.py).
#include "bench/shuffle/routing_model.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "bench/shuffle/workload.hpp"
#include "shunt/error.hpp"
#include "support/require_error.hpp"
#include "support/scratch_folder.hpp"
#include "support/trace_tokens.hpp"

namespace shunt::bench {
namespace {

using test::require_error;
using ::testing::ElementsAre;

class ReplayedTrace : public testing::Test {
 protected:
  /// Writes two layers of top-2 of 8 experts. In layer 1, token n has experts n % 8 and −1, and weight n / 4.
  void write(const std::vector<std::int32_t>& sources, bool weights = true, bool keep_sources = true) {
    TraceWriter writer(path_, {.layers = 2, .experts = 8, .topk = 2, .weights = weights, .sources = keep_sources});
    for (std::size_t token = 0; token < sources.size(); ++token) {
      const auto number = static_cast<std::int32_t>(token);
      writer.append(1, {std::vector{number % 8, -1}, std::vector{static_cast<float>(number) / 4, 1.0f}, 2}, {},
                    RankId(sources[token]));
    }
    writer.finish();
  }

  [[nodiscard]] ShuffleConfig config(std::int32_t ranks, std::int64_t tokens) const {
    ShuffleConfig config;
    config.ranks = ranks;
    config.tokens = tokens;
    config.experts = 8;
    config.topk = 2;
    config.routing = "trace:" + path_;
    config.layer = 1;
    return config;
  }

  /// The numbers of the tokens that each rank replays.
  [[nodiscard]] std::vector<std::vector<float>> numbers(std::int32_t ranks, std::int64_t tokens,
                                                        std::int64_t first_token = 0) const {
    ShuffleConfig replayed = config(ranks, tokens);
    replayed.first_token = first_token;
    const Workload workload(replayed);
    std::vector<std::vector<float>> numbers(static_cast<std::size_t>(ranks));
    for (std::size_t rank = 0; rank < numbers.size(); ++rank) {
      const RankRouting& routing = workload.routing(rank);
      for (std::size_t entry = 0; entry < routing.experts.size(); entry += 2) {
        numbers[rank].push_back(routing.weights[entry] * 4);
        EXPECT_EQ(routing.experts[entry], static_cast<std::int32_t>(numbers[rank].back()) % 8);
        EXPECT_EQ(routing.experts[entry + 1], -1);
      }
    }
    return numbers;
  }

  test::ScratchFolder folder_;
  std::string path_ = folder_.file("a.trace");
};

TEST_F(ReplayedTrace, GivesEachRankItsOwnTokens) {
  write({1, 0, 0, 1, 0});
  EXPECT_THAT(numbers(2, 3), ElementsAre(ElementsAre(1, 2, 4), ElementsAre(0, 3, 0)));
}

TEST_F(ReplayedTrace, GivesRanksRunsIfSourcesAreNotTheseRanks) {
  write({1, 0, 0, 1, 2});
  EXPECT_THAT(numbers(2, 3), ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3, 4, 0)));
  write({1, 1, 1, 1, 1});
  EXPECT_THAT(numbers(2, 3), ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3, 4, 0)));
  write({1, 0, 0, 1, 0}, true, false);
  EXPECT_THAT(numbers(2, 3), ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3, 4, 0)));
}

TEST_F(ReplayedTrace, BeginsAtTheRequestedToken) {
  write({1, 0, 0, 1, 0, 1});
  EXPECT_THAT(numbers(2, 3, 2), ElementsAre(ElementsAre(2, 4, 1), ElementsAre(3, 5, 0)));
  write({0, 0, 0, 0, 0, 0});
  EXPECT_THAT(numbers(2, 3, 2), ElementsAre(ElementsAre(2, 3, 4), ElementsAre(5, 0, 1)));
}

TEST_F(ReplayedTrace, DrawsWeightsIfTheTraceHasNone) {
  write({0, 0}, false);
  const Workload workload(config(1, 2));
  EXPECT_THAT(workload.routing(0).experts, ElementsAre(0, -1, 1, -1));
  for (const float weight : workload.routing(0).weights) EXPECT_GT(weight, 0);
}

TEST_F(ReplayedTrace, UsesTheFirstChoicesIfFewerAreRequested) {
  write({0, 0});
  ShuffleConfig one = config(1, 2);
  one.topk = 1;
  EXPECT_THAT(Workload(one).routing(0).experts, ElementsAre(0, 1));
  EXPECT_THAT(Workload(one).routing(0).weights, ElementsAre(0, 0.25f));
}

TEST_F(ReplayedTrace, IsRefusedWithOptionAndFile) {
  write({0, 0});
  const auto refuses = [&](auto change, const std::string& cause) {
    ShuffleConfig changed = config(1, 2);
    change(changed);
    require_error([&] { (void)make_routing_model(changed); }, ErrorCode::invalid_argument, cause);
  };
  refuses([](ShuffleConfig& c) { c.experts = 7; }, "--experts 7: " + path_ + " has 8 experts");
  refuses([](ShuffleConfig& c) { c.topk = 3; }, "--topk 3: " + path_ + " has 2 choices per token");
  refuses([](ShuffleConfig& c) { c.layer = 2; }, "--layer 2: " + path_ + " has layers 0 to 1");
  refuses([](ShuffleConfig& c) { c.layer = 0; }, path_ + ": layer 0 holds no tokens");
  refuses([](ShuffleConfig& c) { c.first_token = 2; }, "--first-token 2: " + path_ + " has tokens 0 to 1");
  refuses(
      [](ShuffleConfig& c) {
        c.prune = {2, "similarity", "ranks"};
      },
      "--prune-by similarity: --routing trace:" + path_ + " has no scores of layer 1");
  std::filesystem::resize_file(path_, 70);
  refuses([](ShuffleConfig&) {}, path_ + ": truncated: 70 bytes");
  std::ofstream(path_) << "0 1\n";
  refuses([](ShuffleConfig&) {}, "--layer 1: " + path_ + " is a text trace");
}

}  // namespace
}  // namespace shunt::bench
