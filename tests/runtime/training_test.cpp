// Texts, batches, checkpoints and rates of a training.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "runtime/checkpoint.hpp"
#include "runtime/profile.hpp"
#include "runtime/trainer.hpp"
#include "support/file_size_limit.hpp"
#include "support/require_error.hpp"
#include "support/scratch_folder.hpp"

namespace shunt::runtime::test {
namespace {

namespace fs = std::filesystem;
using shunt::test::require_error;
using shunt::test::ScratchFolder;

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

std::string prose(std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += "the quick brown fox jumps over the lazy dog and runs; ";
  text.resize(bytes);
  return text;
}

Corpus small_corpus() {
  const std::string text = prose(6000);
  Corpus corpus;
  corpus.training.assign(text.begin(), text.begin() + 5000);
  corpus.held_out.assign(text.begin() + 5000, text.end());
  return corpus;
}

graph::Model small_model(std::int64_t sequences_per_rank) {
  graph::Model model = graph::Model::from_json("test", R"({"name": "small", "layers": 2, "hidden": 16, "ffn_hidden": 24,
    "vocabulary": 256, "sequence": 16, "sequences_per_rank": 4, "dtype": "f32", "positions": "rope", "norm": "rms",
    "activation": "swiglu", "attention": {"kind": "fused", "heads": 2}, "moe": {"experts": 8, "hidden": 12,
    "gate": {"scores": "softmax", "topk": 2, "balance_loss": 0.01}}, "optimizer": {"kind": "adam"}})",
                                               "cpu");
  model.sequences_per_rank = sequences_per_rank;
  return model;
}

constexpr std::int64_t kSequences = 8;  // of all ranks

struct Training {
  std::int32_t ranks = 2;
  std::int64_t steps = 6;
  std::string resume_from = {}, save_to = {};
};

/// Bits per byte of each step, then of the held-out text.
std::vector<double> train(const Training& training, const Corpus& corpus) {
  std::vector<double> losses;
  World::spawn(training.ranks, [&](World& world) {
    const graph::Model model = small_model(kSequences / world.size());
    Trainer trainer(world, model, graph::build_training_step(model, world.size()), corpus,
                    {.steps = 40, .rate = 1e-2, .warmup = 3});
    if (!training.resume_from.empty()) trainer.resume(training.resume_from);
    std::vector<double> mine;
    while (trainer.steps_done() < training.steps) mine.push_back(trainer.step().bits_per_byte);
    mine.push_back(trainer.evaluate());
    if (!training.save_to.empty()) trainer.save(training.save_to);
    if (world.rank().value == 0) losses = mine;
  });
  return losses;
}

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Text, OfAFileHoldsOutItsLastTenth) {
  const ScratchFolder folder;
  const std::string path = folder.file("text.txt");
  write(path, prose(900) + std::string(100, 'x'));
  const Corpus corpus = read_corpus(path, 50);
  EXPECT_EQ(corpus.training.size(), 901u);
  EXPECT_EQ(corpus.held_out.size(), 101u);
  EXPECT_EQ(std::ranges::count(corpus.held_out, 'x'), 100);
}

TEST(Text, OfAFolderHoldsOutFilesByTheirPathAndLeavesOutHiddenAndBinaryOnes) {
  const ScratchFolder folder;
  for (int i = 0; i < 60; ++i)
    write(fs::path(folder.file("texts")) / std::to_string(i % 3) / (std::to_string(i) + ".txt"), prose(100));
  write(folder.file("texts/.git/a"), prose(5000));
  write(folder.file("texts/.hidden"), prose(5000));
  write(folder.file("texts/binary"), std::string(5000, '\0'));
  const Corpus corpus = read_corpus(folder.file("texts"), 50);
  EXPECT_EQ(corpus.num_files, 60u);
  EXPECT_EQ(corpus.training.size() + corpus.held_out.size(), 60u * 101);
  EXPECT_GT(corpus.held_out.size(), 0u);
  EXPECT_LT(corpus.held_out.size(), 60u * 101 / 3);
  fs::rename(folder.file("texts"), folder.file("elsewhere"));
  EXPECT_EQ(hash_of(read_corpus(folder.file("elsewhere"), 50)), hash_of(corpus));
}

TEST(Text, ThatIsTooShortOrMissingIsRefused) {
  const ScratchFolder folder;
  const std::string path = folder.file("text.txt");
  write(path, prose(400));
  require_error([&] { (void)read_corpus(path, 257); }, ErrorCode::invalid_argument, "give more text");
  require_error([&] { (void)read_corpus(folder.file("nothing"), 5); }, ErrorCode::invalid_argument, "nothing");
}

TEST(Text, OfTheRepositoryIsFoundFromTheProgram) {
  const Corpus corpus = read_own_repository(257);
  EXPECT_GT(corpus.num_files, 500u);
  EXPECT_GT(corpus.training.size(), 5 * corpus.held_out.size());
}

TEST(Batch, IsTheSameWhateverTheNumberOfRanks) {
  const auto all = draw_sequences(5000, 16, 3, 7, 0, 8);
  for (std::int64_t first = 0; first < 8; first += 2) {
    const auto part = draw_sequences(5000, 16, 3, 7, first, 2);
    EXPECT_TRUE(std::ranges::equal(part, std::span(all).subspan(static_cast<std::size_t>(first), 2)));
  }
  EXPECT_NE(draw_sequences(5000, 16, 3, 8, 0, 8), all);
  EXPECT_EQ(std::set<std::size_t>(all.begin(), all.end()).size(), all.size());
}

TEST(Rate, RisesThenFallsAlongACosine) {
  const TrainerOptions options{.steps = 110, .rate = 1, .warmup = 10, .last_rate = 0.1};
  EXPECT_DOUBLE_EQ(rate_of(options, 0), 0.1);
  EXPECT_DOUBLE_EQ(rate_of(options, 9), 1);
  EXPECT_DOUBLE_EQ(rate_of(options, 60), 0.55);
  EXPECT_NEAR(rate_of(options, 110), 0.1, 1e-12);
  EXPECT_NEAR(rate_of(options, 500), 0.1, 1e-12);
}

TEST(Training, LearnsAlikeOnAnyNumberOfRanks) {
  const Corpus corpus = small_corpus();
  const std::vector<double> alone = train({.ranks = 1, .steps = 30}, corpus);
  EXPECT_LT(alone.back(), 0.6 * alone.front());
  for (const std::int32_t ranks : {2, 4}) {
    const std::vector<double> together = train({.ranks = ranks, .steps = 30}, corpus);
    for (std::size_t i = 0; i < 10; ++i)
      EXPECT_NEAR(together[i], alone[i], 1e-5 * alone[i]) << ranks << " ranks, " << i;
  }
}

TEST(Checkpoint, ContinuesBitForBitAndOnOtherNumbersOfRanks) {
  const ScratchFolder folder;
  const std::string half = folder.file("half"), whole = folder.file("whole"), again = folder.file("again");
  const Corpus corpus = small_corpus();
  const std::vector<double> uninterrupted = train({.steps = 6, .save_to = whole}, corpus);
  (void)train({.steps = 3, .save_to = half}, corpus);
  const std::vector<double> resumed = train({.steps = 6, .resume_from = half, .save_to = again}, corpus);
  EXPECT_TRUE(std::equal(resumed.begin(), resumed.end(), uninterrupted.begin() + 3, uninterrupted.end()));
  EXPECT_EQ(contents(again), contents(whole));

  for (const std::int32_t ranks : {1, 4}) {
    const std::string copy = folder.file("copy");
    (void)train({.ranks = ranks, .steps = 3, .resume_from = half, .save_to = copy}, corpus);  // loads and saves
    EXPECT_EQ(contents(copy), contents(half));
    const std::vector<double> elsewhere = train({.ranks = ranks, .steps = 6, .resume_from = half}, corpus);
    for (std::size_t i = 0; i < elsewhere.size(); ++i) EXPECT_NEAR(elsewhere[i], resumed[i], 1e-5 * resumed[i]);
  }
}

TEST(Checkpoint, ThatIsDamagedForeignOrOfAnotherTrainingIsRefusedByName) {
  const ScratchFolder folder;
  const std::string good = folder.file("good"), bad = folder.file("bad");
  const Corpus corpus = small_corpus();
  (void)train({.steps = 1, .save_to = good}, corpus);
  const std::string bytes = contents(good);
  const auto is_refused = [&](const std::string& text, const std::string& why) {
    write(bad, text);
    require_error([&] { (void)train({.resume_from = bad}, corpus); }, ErrorCode::invalid_argument, bad);
    require_error([&] { (void)train({.resume_from = bad}, corpus); }, ErrorCode::invalid_argument, why);
  };
  is_refused("", "is no checkpoint");
  is_refused(prose(500), "is no checkpoint");
  for (const std::size_t size : {10u, 40u, 100u}) is_refused(bytes.substr(0, size), "");
  is_refused(bytes.substr(0, bytes.size() - 1), "is damaged");
  is_refused(bytes + "x", "is damaged");
  std::string flipped = bytes;
  flipped[bytes.size() / 2] ^= 1;
  is_refused(flipped, "checksum");
  Corpus other = corpus;
  other.training[5] ^= 1;
  require_error([&] { (void)train({.resume_from = good}, other); }, ErrorCode::invalid_argument, "corpus");
  World::spawn(2, [&](World& world) {
    graph::Model model = small_model(kSequences / 2);
    model.layers = 3;
    Trainer trainer(world, model, graph::build_training_step(model, 2), corpus, {});
    require_error([&] { trainer.resume(good); }, ErrorCode::invalid_argument, "another model");
  });
}

TEST(Checkpoint, ThatCantBeWrittenFailsOnAllRanksAndLeavesTheOlderOne) {
  const ScratchFolder folder;
  const std::string path = folder.file("checkpoint");
  const Corpus corpus = small_corpus();
  (void)train({.steps = 1, .save_to = path}, corpus);
  const std::string before = contents(path);
  std::atomic<int> refused = 0;
  const shunt::test::FileSizeLimit full(before.size() / 2);
  World::spawn(4, [&](World& world) {
    const graph::Model model = small_model(2);
    Trainer trainer(world, model, graph::build_training_step(model, 4), corpus, {});
    require_error([&] { trainer.save(path); }, ErrorCode::system, path);
    ++refused;
    (void)trainer.step();  // the world is intact
  });
  EXPECT_EQ(refused, 4);
  EXPECT_EQ(contents(path), before);
  EXPECT_EQ(folder.names(), std::set<std::string>{"checkpoint"});
}

TEST(Checkpoint, ThatIsAnotherOneOnSomeRankIsNamed) {
  const ScratchFolder folder;
  const Corpus corpus = small_corpus();
  (void)train({.steps = 1, .save_to = folder.file("1")}, corpus);
  (void)train({.steps = 2, .save_to = folder.file("2")}, corpus);
  World::spawn(2, [&](World& world) {
    const graph::Model model = small_model(4);
    Trainer trainer(world, model, graph::build_training_step(model, 2), corpus, {});
    require_error([&] { trainer.resume(folder.file(std::to_string(1 + world.rank().value))); }, ErrorCode::mismatch,
                  "rank 1 has another checkpoint");
  });
}

TEST(Training, OnOtherTextsOfSomeRanksIsRefusedByName) {
  const Corpus corpus = small_corpus();
  Corpus other = corpus;
  other.training[9] ^= 1;
  World::spawn(2, [&](World& world) {
    const graph::Model model = small_model(4);
    require_error(
        [&] {
          Trainer(world, model, graph::build_training_step(model, 2), world.rank().value == 0 ? corpus : other, {});
        },
        ErrorCode::mismatch, "rank 1 has another text");
  });
}

TEST(Profile, HasATimeForEveryOpOfTheStepAndIsTheSameOnAllRanks) {
  const Corpus corpus = small_corpus();
  std::vector<std::string> curves(2);
  World::spawn(2, [&](World& world) {
    const graph::Model model = small_model(4);
    const Profile profile = measure_profile(world, model, corpus, {}, {.warmup = 1, .steps = 2});
    const graph::Graph step = graph::build_training_step(model, 2);
    for (const graph::Op& op : step.ops())
      if (graph::lane_of(op) == graph::Lane::compute && !profile.table.find(graph::cost_key(step, op)))
        throw std::runtime_error("no time for " + graph::cost_key(step, op));
    std::string& text = curves[world.rank().index()];
    for (const auto& [bytes, seconds] : profile.cluster.all_to_all)
      text += std::to_string(bytes) + " " + std::to_string(seconds) + "\n";
    for (const auto& [bytes, seconds] : profile.cluster.all_reduce)
      text += std::to_string(bytes) + " " + std::to_string(seconds) + "\n";
  });
  EXPECT_EQ(curves[0], curves[1]);
  EXPECT_EQ(std::ranges::count(curves[0], '\n') > 5, true);
}

}  // namespace
}  // namespace shunt::runtime::test
