#include "bench/selftest/run.hpp"

#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "bench/selftest/processes.hpp"
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
  for (const LinkType type : {LinkType::threads, LinkType::processes, LinkType::islands})
    links.push_back({type, {}, {1, 2, 3}});
  if (why_no_far_processes().empty()) links.push_back({LinkType::tcp, {}, {2, 3}});
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

TEST_P(Corrupted, ResultIsReportedWithRankAndName) {
  RunOptions options = quick();
  options.hooks.tamper = Corrupting{GetParam(), RankId(1)};
  const auto verdicts = run_checks({{LinkType::processes, {}, {2}}}, options);
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

/// Acts on rank 0 in every layout with a gradient of weights, which is every layout but token_unique.
struct OnWeights {
  std::function<void()> act;
  void operator()(std::string_view name, RankId rank, const Tensor&) const {
    if (name == "combine_backward: weights" && rank == RankId(0)) act();
  }
};

std::vector<Verdict> run_with(const std::function<void()>& act, LinkType type, std::chrono::milliseconds deadline = 10s,
                              double seconds = 60) {
  RunOptions options = quick();
  options.hooks.tamper = OnWeights{act};
  options.deadline = deadline;
  options.seconds = seconds;
  return run_checks({{type, {}, {2}}}, options);
}

TEST(SelfTest, ReportsAnErrorAndContinuesWithOtherLayouts) {
  for (const LinkType type : {LinkType::threads, LinkType::processes}) {
    const auto verdicts = run_with([] { fail(ErrorCode::system, "the disk is on fire"); }, type);
    for (const char* layout : {"expert_major", "padded"}) {
      EXPECT_EQ(verdict_of(verdicts, layout).status, Status::failed);
      EXPECT_THAT(verdict_of(verdicts, layout).why, HasSubstr("the disk is on fire"));
    }
    EXPECT_EQ(verdict_of(verdicts, "token_unique").status, Status::ok);
  }
}

TEST(SelfTest, SurvivesACrash) {
  const auto verdicts = run_with([] { (void)raise(SIGKILL); }, LinkType::threads);
  EXPECT_THAT(verdict_of(verdicts, "expert_major").why, HasSubstr("signal 9"));
  EXPECT_EQ(verdict_of(verdicts, "token_unique").status, Status::ok);
}

TEST(SelfTest, EndsAHangingLink) {
  const auto begin = std::chrono::steady_clock::now();
  // The other rank's engine throws at its deadline; the child is killed because the hanging thread does not end.
  const auto verdicts = run_with([] { std::this_thread::sleep_for(1h); }, LinkType::threads, 500ms, 1.0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
  EXPECT_EQ(verdict_of(verdicts, "expert_major").status, Status::failed);
  EXPECT_THAT(verdict_of(verdicts, "expert_major").why, HasSubstr("was killed"));
  EXPECT_FALSE(is_fine(verdicts));
}

TEST(SelfTest, ReportsCasesThatItHadNoTimeFor) {
  RunOptions options = quick();
  options.seconds = 0;
  const auto verdicts = run_checks({{LinkType::threads, {}, {2}}}, options);
  for (const Verdict& verdict : verdicts) {
    EXPECT_EQ(verdict.status, Status::incomplete);
    EXPECT_THAT(verdict.why, HasSubstr("raise --seconds"));
  }
  EXPECT_FALSE(is_fine(verdicts));
}

TEST(SelfTest, PassesWithSkippedAndNotOfferedLinks) {
  EXPECT_TRUE(is_fine({{.link = "a", .status = Status::skipped}, {.link = "b", .status = Status::not_offered}}));
}

TEST(SelfTest, FailsOnAMissingDevice) {
  Link link{.type = LinkType::threads, .devices = {1000}, .rank_counts = {2}};
  const auto verdicts = run_checks({link}, quick());
  EXPECT_EQ(verdict_of(verdicts, "expert_major").status, Status::failed);
  EXPECT_NE(verdict_of(verdicts, "expert_major").why, "");
}

std::string run_part(const std::function<void(const SendLine&)>& part, std::chrono::milliseconds limit = 20s) {
  std::string lines;
  const std::string why = run_in_child(
      part, [&](const std::string& line) { lines += line + ";"; }, std::chrono::steady_clock::now() + limit);
  return lines + why;
}

TEST(RunInChild, PassesLinesToTheParent) {
  const auto part = [](const SendLine& send_line) {
    send_line("one");
    send_line("two\nlines");
  };
  EXPECT_EQ(run_part(part), "one;two lines;");
}

TEST(RunInChild, ReturnsHowTheChildEnded) {
  EXPECT_EQ(run_part([](const SendLine&) { fail(ErrorCode::system, "no\nroom"); }), "error (system): no room");
  EXPECT_EQ(run_part([](const SendLine&) { throw std::runtime_error("odd"); }), "error: odd");
  EXPECT_THAT(run_part([](const SendLine&) { _exit(0); }), HasSubstr("before it was done"));
  EXPECT_THAT(run_part([](const SendLine&) { (void)raise(SIGKILL); }), HasSubstr("signal 9"));
}

TEST(RunInChild, KillsTheChildAtTheLimit) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(run_part([](const SendLine&) { std::this_thread::sleep_for(1h); }, 100ms), HasSubstr("was killed"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
}

}  // namespace
}  // namespace shunt::bench::selftest
