#include "bench/selftest/run.hpp"

#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "bench/selftest/apart.hpp"
#include "bench/selftest/far_processes.hpp"
#include "core/fail.hpp"

namespace shunt::bench::selftest {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

RunOptions quick() { return {.seconds = 60, .deadline = 10s}; }

const Verdict& verdict_of(const std::vector<Verdict>& verdicts, std::string_view layout) {
  const auto found = std::ranges::find(verdicts, layout, &Verdict::layout);
  if (found == verdicts.end()) throw std::runtime_error("there is no such verdict");
  return *found;
}

TEST(SelfTest, AgreesOnEveryLinkOfHostMemory) {
  std::vector<Link> links;
  for (const Way way : {Way::threads, Way::processes, Way::islands}) links.push_back({way, {}, {1, 2, 3}});
  if (why_no_far_processes().empty()) links.push_back({Way::tcp, {}, {2, 3}});
  const auto verdicts = run_checks(links, quick());
  EXPECT_EQ(verdicts.size(), 3 * links.size());
  EXPECT_TRUE(is_fine(verdicts));
  for (const Verdict& verdict : verdicts) {
    EXPECT_EQ(verdict.status, Status::ok) << verdict.link << ' ' << verdict.layout << ": " << verdict.why;
    EXPECT_EQ(verdict.num_ok, verdict.num_cases);
    EXPECT_GT(verdict.num_comparisons, 10 * verdict.num_cases);
  }
}

/// Flips one bit of a result.
struct Corrupting {
  std::string what;
  RankId rank;
  void operator()(std::string_view name, RankId at, const Tensor& copy) const {
    if (name == what && at == rank && copy.bytes() > 0) copy.data[copy.bytes() - 1] ^= std::byte{1};
  }
};

class Corrupted : public testing::TestWithParam<const char*> {};

TEST_P(Corrupted, ResultIsReportedWithRankAndPlace) {
  RunOptions options = quick();
  options.hooks.tamper = Corrupting{GetParam(), RankId(1)};
  const auto verdicts = run_checks({{Way::processes, {}, {2}}}, options);
  EXPECT_FALSE(is_fine(verdicts));
  const Verdict& verdict = verdict_of(verdicts, "expert_major");
  EXPECT_EQ(verdict.status, Status::failed);
  EXPECT_GT(verdict.num_failed, 0);
  EXPECT_THAT(verdict.why, HasSubstr(std::string("rank 1: ") + GetParam() + ": ["));
  EXPECT_THAT(verdict.why, HasSubstr("2 ranks"));
}

INSTANTIATE_TEST_SUITE_P(SelfTest, Corrupted,
                         testing::Values("dispatch: rows", "dispatch: scales", "combine", "dispatch_backward",
                                         "combine_backward: rows", "combine_backward: weights"));

/// How many ranks there are is of no concern to it, but not the layout: only token_unique has no gradient of weights.
struct OnWeights {
  std::function<void()> act;
  void operator()(std::string_view name, RankId rank, const Tensor&) const {
    if (name == "combine_backward: weights" && rank == RankId(0)) act();
  }
};

std::vector<Verdict> run_with(const std::function<void()>& act, Way way, std::chrono::milliseconds deadline = 10s,
                              double seconds = 60) {
  RunOptions options = quick();
  options.hooks.tamper = OnWeights{act};
  options.deadline = deadline;
  options.seconds = seconds;
  return run_checks({{way, {}, {2}}}, options);
}

TEST(SelfTest, ReportsAnErrorAndGoesOnWithOtherLayouts) {
  for (const Way way : {Way::threads, Way::processes}) {
    const auto verdicts = run_with([] { fail(ErrorCode::system, "the disk is on fire"); }, way);
    for (const char* layout : {"expert_major", "padded"}) {
      EXPECT_EQ(verdict_of(verdicts, layout).status, Status::failed);
      EXPECT_THAT(verdict_of(verdicts, layout).why, HasSubstr("the disk is on fire"));
    }
    EXPECT_EQ(verdict_of(verdicts, "token_unique").status, Status::ok);
  }
}

TEST(SelfTest, SurvivesACrash) {
  const auto verdicts = run_with([] { (void)raise(SIGKILL); }, Way::threads);
  EXPECT_THAT(verdict_of(verdicts, "expert_major").why, HasSubstr("signal 9"));
  EXPECT_EQ(verdict_of(verdicts, "token_unique").status, Status::ok);
}

TEST(SelfTest, EndsWhatHangs) {
  const auto begin = std::chrono::steady_clock::now();
  // The engines wait for the rank that hangs until their deadline; a process whose threads don't end is killed.
  const auto verdicts = run_with([] { std::this_thread::sleep_for(1h); }, Way::threads, 500ms, 1.0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
  EXPECT_EQ(verdict_of(verdicts, "expert_major").status, Status::failed);
  EXPECT_THAT(verdict_of(verdicts, "expert_major").why, HasSubstr("was killed"));
  EXPECT_FALSE(is_fine(verdicts));
}

TEST(SelfTest, SaysWhatItHadNoTimeFor) {
  RunOptions options = quick();
  options.seconds = 0;
  const auto verdicts = run_checks({{Way::threads, {}, {2}}}, options);
  for (const Verdict& verdict : verdicts) {
    EXPECT_EQ(verdict.status, Status::incomplete);
    EXPECT_THAT(verdict.why, HasSubstr("raise --seconds"));
  }
  EXPECT_FALSE(is_fine(verdicts));
}

TEST(SelfTest, IsFineWithWhatIsSkippedOrNotOffered) {
  EXPECT_TRUE(is_fine({{.link = "a", .status = Status::skipped}, {.link = "b", .status = Status::not_offered}}));
}

TEST(SelfTest, FailsOnADeviceThatIsNotThere) {
  Link link{.way = Way::threads, .devices = {1000}, .rank_counts = {2}};
  const auto verdicts = run_checks({link}, quick());
  EXPECT_EQ(verdict_of(verdicts, "expert_major").status, Status::failed);
  EXPECT_NE(verdict_of(verdicts, "expert_major").why, "");
}

std::string run_part(const std::function<void(const Say&)>& part, std::chrono::milliseconds limit = 20s) {
  std::string said;
  const std::string why = run_apart(
      part, [&](const std::string& line) { said += line + ";"; }, std::chrono::steady_clock::now() + limit);
  return said + why;
}

TEST(RunApart, HearsWhatThePartSays) {
  const auto part = [](const Say& say) {
    say("one");
    say("two\nlines");
  };
  EXPECT_EQ(run_part(part), "one;two lines;");
}

TEST(RunApart, SaysHowThePartEnded) {
  EXPECT_EQ(run_part([](const Say&) { fail(ErrorCode::system, "no\nroom"); }), "error (system): no room");
  EXPECT_EQ(run_part([](const Say&) { throw std::runtime_error("odd"); }), "error: odd");
  EXPECT_THAT(run_part([](const Say&) { _exit(0); }), HasSubstr("before it was through"));
  EXPECT_THAT(run_part([](const Say&) { (void)raise(SIGKILL); }), HasSubstr("signal 9"));
}

TEST(RunApart, EndsThePartAtItsLimit) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(run_part([](const Say&) { std::this_thread::sleep_for(1h); }, 100ms), HasSubstr("was killed"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
}

}  // namespace
}  // namespace shunt::bench::selftest
