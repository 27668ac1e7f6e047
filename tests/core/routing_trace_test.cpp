#include "shunt/routing_trace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <limits>
#include <numeric>
#include <set>
#include <thread>

#include "shunt/error.hpp"
#include "support/file_size_limit.hpp"
#include "support/require_error.hpp"
#include "support/scratch_folder.hpp"
#include "support/trace_tokens.hpp"

namespace shunt::test {
namespace {

using ::testing::ElementsAre;

constexpr TraceShape kPlain = {.layers = 2, .experts = 8, .topk = 2};
constexpr TraceShape kWeighted = {.layers = 1, .experts = 8, .topk = 2, .weights = true};
constexpr TraceShape kScored = {.layers = 1, .experts = 3, .topk = 2, .scores = true};

class RoutingTraces : public testing::Test {
 protected:
  /// Writes one layer with one call and opens the file.
  TraceLayer written(const TraceShape& shape, const Routing& routing, std::span<const float> scores = {}) {
    TraceWriter writer(path_, shape);
    writer.append(0, routing, scores, RankId(0));
    writer.finish();
    return RoutingTrace::open(path_).layer(0);
  }

  ScratchFolder folder_;
  std::string path_ = folder_.file("a.trace");
};

std::vector<std::int32_t> experts_of(const TraceLayer& layer, std::int32_t topk) {
  std::vector<std::int32_t> experts(static_cast<std::size_t>(layer.num_tokens() * topk));
  layer.read_experts(0, experts);
  return experts;
}

/// The part of this process's memory that is pages of files.
std::int64_t mapped_file_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (std::int64_t kib = 0; word == "RssFile:" && status >> kib) return kib;
  throw std::runtime_error("/proc/self/status says nothing of RssFile");
}

TEST_F(RoutingTraces, HoldsWhatWasAppendedWhateverTheShape) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 generator(seed);
    Dice dice(generator);
    TraceShape shape = {.layers = dice.between(1, 5),
                        .experts = dice.pick({1, 7, 64, 254, 255, 256, 257, 1000, 65535}),
                        .topk = 0,
                        .weights = dice.one_in(2),
                        .scores = dice.one_in(2),
                        .sources = dice.one_in(2)};
    shape.topk = dice.between(1, std::min(shape.experts, 9));
    const bool is_large = shape.experts > 1000;
    const bool has_drops = dice.one_in(2);
    std::vector<TraceTokens> expected(static_cast<std::size_t>(shape.layers));
    std::vector<bool> scores_ended(expected.size());
    TraceWriter writer(path_, shape);
    for (std::int32_t call = dice.between(0, 12); call > 0; --call) {
      const std::int32_t layer = dice.between(0, shape.layers - 1);
      const auto l = static_cast<std::size_t>(layer);
      const std::int32_t tokens = is_large ? dice.between(0, 3) : dice.pick({0, 1, 5, 300, 3000});
      const std::int32_t scored = scores_ended[l] || !shape.scores ? 0 : dice.between(0, tokens);
      const std::int32_t source = dice.between(0, 2);
      const TraceTokens part = TraceTokens::random(dice, shape, tokens, scored, source, has_drops);
      writer.append(layer, part.routing(shape.topk), part.scores, RankId(source));
      expected[l].append(part);
      scores_ended[l] = scores_ended[l] || scored < tokens;
    }
    writer.finish();

    const RoutingTrace trace = RoutingTrace::open(path_);
    EXPECT_EQ(trace.shape(), shape);
    for (std::int32_t layer = 0; layer < shape.layers; ++layer)
      for (const std::int64_t step : {std::int64_t{37}, std::int64_t{1} << 40})
        EXPECT_EQ(TraceTokens::of_layer(trace.layer(layer), shape, step), expected[static_cast<std::size_t>(layer)]);
  }
}

TEST_F(RoutingTraces, RoundsWeightsToNearestF16AndSaturates) {
  const std::vector<std::int32_t> experts = {0, 1, 2, 3};
  const std::vector<float> weights = {1.0f + 0x1p-11f, 1e9f, -1e9f, 0x1p-25f + 0x1p-26f};
  std::vector<float> read(4);
  written(kWeighted, {experts, weights, 2}).read_weights(0, read);
  EXPECT_THAT(read, ElementsAre(1.0f, 65504.0f, -65504.0f, 0x1p-24f));
}

TEST_F(RoutingTraces, ReadsEveryFiniteF16AsTheReferenceDoes) {
  std::vector<float> scores;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits)
    if ((bits & 0x7c00) != 0x7c00) scores.push_back(f32_from_f16(static_cast<std::uint16_t>(bits)));
  ASSERT_EQ(scores.size() % 64, 0u);
  const std::size_t tokens = scores.size() / 64;
  const std::vector<std::int32_t> experts(tokens, 0);
  const TraceLayer layer = written({.layers = 1, .experts = 64, .topk = 1, .scores = true}, {experts, {}, 1}, scores);
  std::vector<float> read(scores.size());
  layer.read_scores(0, read);
  EXPECT_EQ(std::memcmp(read.data(), scores.data(), scores.size() * sizeof(float)), 0);
}

TEST_F(RoutingTraces, WithoutWeightsInTheRoutingAllAreOneButThoseOfDroppedChoices) {
  const std::vector<std::int32_t> experts = {3, -1};
  std::vector<float> read(2);
  written(kWeighted, {experts, {}, 2}).read_weights(0, read);
  EXPECT_THAT(read, ElementsAre(1.0f, 0.0f));
}

TEST_F(RoutingTraces, TheWeightOfADroppedChoiceMayBeAnything) {
  const std::vector<std::int32_t> experts = {3, -1};
  const std::vector<float> weights = {0.5f, std::numeric_limits<float>::quiet_NaN()};
  std::vector<float> read(2);
  written(kWeighted, {experts, weights, 2}).read_weights(0, read);
  EXPECT_THAT(read, ElementsAre(0.5f, 0.0f));
}

TEST_F(RoutingTraces, TakesOneBytePerChoiceOf256ExpertsUnlessSomeAreDropped) {
  constexpr std::int32_t kTokens = 20'000;
  std::mt19937_64 generator(1);
  Dice dice(generator);
  const TraceShape shape = {.layers = 1, .experts = 256, .topk = 4};
  const auto bytes_per_choice = [&](bool has_drops) {
    (void)written(shape, TraceTokens::random(dice, shape, kTokens, 0, 0, has_drops).routing(4));
    return static_cast<double>(std::filesystem::file_size(path_)) / (kTokens * 4);
  };
  EXPECT_LT(bytes_per_choice(false), 1.01);
  EXPECT_GT(bytes_per_choice(true), 1.99);
  EXPECT_LT(bytes_per_choice(true), 2.01);
}

TEST_F(RoutingTraces, ConstantSourcesTakeNoSpace) {
  const std::vector<std::int32_t> experts(8000, 1);
  const auto size_with = [&](bool sources) {
    (void)written({.layers = 1, .experts = 8, .topk = 1, .sources = sources}, {experts, {}, 1});
    return std::filesystem::file_size(path_);
  };
  EXPECT_EQ(size_with(true), size_with(false) + 8);
}

/// The name of the only file in the folder that this process has open, which may be unnamed there.
std::string open_file_in(const ScratchFolder& folder) {
  std::error_code error;  // for descriptors that are closed concurrently
  for (const auto& descriptor : std::filesystem::directory_iterator("/proc/self/fd"))
    if (std::filesystem::read_symlink(descriptor, error).string().starts_with(folder.file("")))
      return descriptor.path();
  return "";
}

TEST_F(RoutingTraces, AppearsUnderItsNameOnlyWhenFinished) {
  {
    TraceWriter writer(path_, kPlain);
    writer.append(0, {std::vector<std::int32_t>{0, 1}, {}, 2});
    EXPECT_EQ(folder_.names().count("a.trace"), 0u);
    const std::string partial = open_file_in(folder_);
    require_error([&] { RoutingTrace::open(partial); }, ErrorCode::invalid_argument,
                  partial + ": half-written: its writer did not finish");
  }
  EXPECT_THAT(folder_.names(), ElementsAre());
  TraceWriter writer(path_, kPlain);
  writer.finish();
  EXPECT_THAT(folder_.names(), ElementsAre("a.trace"));
  EXPECT_EQ(RoutingTrace::open(path_).layer(1).num_tokens(), 0);
}

TEST_F(RoutingTraces, AnOpenTraceOutlivesItsReplacement) {
  const TraceLayer old = written(kPlain, {std::vector<std::int32_t>{0, 1}, {}, 2});
  const TraceLayer later = written(kPlain, {std::vector<std::int32_t>{2, 3}, {}, 2});
  EXPECT_THAT(experts_of(old, 2), ElementsAre(0, 1));
  EXPECT_THAT(experts_of(later, 2), ElementsAre(2, 3));
}

TEST_F(RoutingTraces, AReleasedLayerTakesNoMemoryAndCanBeReadAgain) {
  constexpr std::int32_t kTokens = 8 << 20;
  const std::vector<std::int32_t> experts(kTokens, 3);
  const TraceLayer layer = written({.layers = 1, .experts = 8, .topk = 1}, {experts, {}, 1});
  std::vector<std::int32_t> read(kTokens);
  layer.read_experts(0, read);
  const std::int64_t before = mapped_file_kib();
  layer.release();
  EXPECT_LT(mapped_file_kib(), before - kTokens / 1024 / 2);
  std::fill(read.begin(), read.end(), 0);
  layer.read_experts(0, read);
  EXPECT_EQ(read, experts);
}

TEST_F(RoutingTraces, LayersAreReadBySeveralThreadsAtOnce) {
  constexpr TraceShape kShape = {.layers = 4, .experts = 64, .topk = 8, .weights = true};
  std::mt19937_64 generator(1);
  Dice dice(generator);
  const TraceTokens tokens = TraceTokens::random(dice, kShape, 5000, 0, 0, true);
  TraceWriter writer(path_, kShape);
  for (std::int32_t layer = 0; layer < 4; ++layer) writer.append(layer, tokens.routing(8));
  writer.finish();
  const RoutingTrace trace = RoutingTrace::open(path_);
  std::vector<int> num_equal(4);
  std::vector<std::thread> threads;
  for (int& mine : num_equal)
    threads.emplace_back([&] {
      for (std::int32_t layer = 0; layer < 4; ++layer)
        mine += TraceTokens::of_layer(trace.layer(layer), kShape, 1000) == tokens ? 1 : 0;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(num_equal, testing::Each(4));
}

TEST_F(RoutingTraces, ReadsOutsideALayerAreRefused) {
  const TraceLayer layer = written(kScored, {std::vector<std::int32_t>{0, 1, 1, 2}, {}, 2}, std::vector<float>(3));
  std::vector<std::int32_t> numbers(4);
  std::vector<float> values(6);
  const auto refuses = [](const std::function<void()>& read, const std::string& cause) {
    require_error(read, ErrorCode::invalid_argument, cause);
  };
  refuses([&] { layer.read_experts(1, numbers); },
          "layer 0: experts of 2 tokens from token 1 on; there are those of 2");
  refuses([&] { layer.read_experts(-1, numbers); }, "from token -1 on");
  refuses([&] { layer.read_experts(std::numeric_limits<std::int64_t>::max(), numbers); }, "there are those of 2");
  refuses([&] { layer.read_experts(0, std::span(numbers).first(3)); }, "room for 3 experts, expected a multiple of 2");
  refuses([&] { layer.read_scores(0, values); }, "scores of 2 tokens from token 0 on; there are those of 1");
  refuses([&] { layer.read_weights(0, values); }, "the trace has no weights");
  refuses([&] { layer.read_sources(0, numbers); }, "the trace has no sources");
  refuses([&] { (void)RoutingTrace::open(path_).layer(1); }, "layer 1: expected 0 to 0");
  layer.read_scores(0, std::span(values).first(3));
}

TEST_F(RoutingTraces, AppendNamesLayerTokenAndCauseAndChangesNothing) {
  TraceWriter writer(path_, {.layers = 2, .experts = 3, .topk = 2, .weights = true, .scores = true, .sources = true});
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::int32_t> good = {0, 1, 1, -1};
  const auto refuses = [&](std::int32_t layer, const Routing& routing, const std::string& cause,
                           const std::vector<float>& scores = {}, RankId source = RankId(0)) {
    require_error([&] { writer.append(layer, routing, scores, source); }, ErrorCode::invalid_argument, cause);
  };
  refuses(2, {good, {}, 2}, "layer 2: expected 0 to 1");
  refuses(0, {good, {}, 4}, "layer 0: topk is 4, expected 2");
  refuses(0, {std::span(good).first(3), {}, 2}, "3 experts, expected a multiple of topk 2");
  refuses(0, {good, std::vector<float>{1}, 2}, "1 weights for 4 experts");
  refuses(0, {std::vector<std::int32_t>{0, 1, 2, 3}, {}, 2}, "token 1: expert 3 is not in 0 to 2, nor -1 (dropped)");
  refuses(0, {std::vector<std::int32_t>{0, -2}, {}, 2}, "token 0: expert -2 is not");
  refuses(0, {std::vector<std::int32_t>{0, 1, 2, 2}, {}, 2}, "token 1: expert 2 stands twice");
  refuses(0, {good, std::vector<float>{1, 1, kNan, 1}, 2}, "token 1: a weight is nan");
  refuses(0, {good, {}, 2}, "no source rank", {}, RankId());
  refuses(0, {good, {}, 2}, "4 scores for 2 tokens", std::vector<float>(4));
  refuses(0, {good, {}, 2}, "9 scores for 2 tokens", std::vector<float>(9));
  refuses(0, {good, {}, 2}, "token 1: a score is nan", {0, 0, 0, 0, kNan, 0});
  writer.append(0, {good, {}, 2}, std::vector<float>(3), RankId(0));
  refuses(0, {good, {}, 2}, "scores after tokens without scores", std::vector<float>(6));
  writer.finish();
  refuses(0, {good, {}, 2}, "the trace is finished");
  EXPECT_EQ(experts_of(RoutingTrace::open(path_).layer(0), 2), good);
}

TEST_F(RoutingTraces, InvalidShapesAndPathsAreRefused) {
  const auto refuses = [](const std::string& path, const TraceShape& shape, ErrorCode code, const std::string& cause) {
    require_error([&] { TraceWriter(path, shape); }, code, cause);
  };
  refuses(path_, {.layers = 0, .experts = 8, .topk = 2}, ErrorCode::invalid_argument, "0 layers, expected 1 to");
  refuses(path_, {.layers = 1, .experts = 65'536, .topk = 2}, ErrorCode::invalid_argument, "65536 experts");
  refuses(path_, {.layers = 1, .experts = 8, .topk = 65}, ErrorCode::invalid_argument, "65 choices per token");
  refuses(folder_.file(""), kPlain, ErrorCode::invalid_argument, "no regular file");
  refuses(folder_.file("none/a.trace"), kPlain, ErrorCode::system, "can't write");
  EXPECT_THAT(folder_.names(), ElementsAre());
}

TEST_F(RoutingTraces, AFullDiskIsAnErrorAndLeavesNothing) {
  {
    TraceWriter writer(path_, kPlain);
    const FileSizeLimit full_disk(100'000);
    const std::vector<std::int32_t> experts(1'000'000, -1);
    require_error([&] { writer.append(0, {experts, {}, 2}); }, ErrorCode::system, path_);
    require_error([&] { writer.append(1, {experts, {}, 2}); }, ErrorCode::system, "an earlier write failed");
    require_error([&] { writer.finish(); }, ErrorCode::system, "an earlier write failed");
  }
  EXPECT_THAT(folder_.names(), ElementsAre());
}

TEST_F(RoutingTraces, IsRecognisedByItsFirstBytes) {
  (void)written(kPlain, {std::vector<std::int32_t>{0, 1}, {}, 2});
  EXPECT_TRUE(RoutingTrace::recognise(path_));
  std::ofstream(folder_.file("text")) << "0 1 2\n";
  EXPECT_FALSE(RoutingTrace::recognise(folder_.file("text")));
  EXPECT_FALSE(RoutingTrace::recognise(folder_.file("none")));
  EXPECT_FALSE(RoutingTrace::recognise(folder_.file("")));
}

TEST(SmallRealTrace, MatchesItsReadme) {
  const RoutingTrace trace = RoutingTrace::open(SHUNT_TEST_DATA "/moe64k8-small.trace");
  EXPECT_EQ(trace.shape(), (TraceShape{.layers = 8, .experts = 64, .topk = 8, .weights = true, .scores = true}));
  double distinct_ranks = 0;
  for (std::int32_t number = 0; number < 8; ++number) {
    const TraceLayer layer = trace.layer(number);
    EXPECT_EQ(layer.num_tokens(), 6144);
    EXPECT_EQ(layer.num_scored_tokens(), number == 4 || number == 7 ? 3072 : 0);
    const TraceTokens tokens = TraceTokens::of_layer(layer, trace.shape(), 6144);
    for (std::size_t token = 0; token < 6144; ++token) {
      std::set<std::int32_t> ranks;
      for (std::size_t k = 0; k < 8; ++k) ranks.insert(tokens.experts[token * 8 + k] / 16);
      distinct_ranks += static_cast<double>(ranks.size()) / 6144;
    }
    // The scores hold the weights: each choice's probability is its expert's score.
    for (std::size_t token = 0; token < static_cast<std::size_t>(layer.num_scored_tokens()); ++token) {
      const auto scores = std::span(tokens.scores).subspan(token * 64, 64);
      EXPECT_NEAR(std::accumulate(scores.begin(), scores.end(), 0.0), 1.0, 0.01);
      for (std::size_t k = token * 8; k < token * 8 + 8; ++k)
        EXPECT_NEAR(scores[static_cast<std::size_t>(tokens.experts[k])], tokens.weights[k], 2e-3);
    }
  }
  EXPECT_NEAR(distinct_ranks / 8, 3.6685, 1e-4);  // C_T of contiguous experts on 4 ranks, as NumPy counts it
}

}  // namespace
}  // namespace shunt::test
