#include "bench/selftest/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "bench/ranks.hpp"
#include "bench/selftest/processes.hpp"

namespace shunt::bench::selftest {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr std::size_t kMostText = 2000;
// Added to the deadline of operations: a process that has reported no Error by then is killed.
constexpr std::chrono::seconds kSlack{5};

Deadline after(Deadline begin, double seconds) {
  return begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Caches cases, because several links use the same and the reference is slow.
class Cases {
 public:
  explicit Cases(std::uint64_t seed) : seed_(seed) {}
  const Case& of(const CaseKey& key) {
    const auto found = cases_.find(key);
    return found != cases_.end() ? found->second : cases_.emplace(key, make_case(key, seed_)).first->second;
  }

 private:
  std::uint64_t seed_;
  std::map<CaseKey, Case> cases_;
};

/// The child's side: runs cases until the time is up and reports the outcome of each.
class LinkWorker {
 public:
  LinkWorker(const Link& link, const std::vector<const Case*>& cases, const RunOptions& options, Deadline stop,
             const SendLine& send_line)
      : link_(link), cases_(cases), options_(options), stop_(stop), send_line_(send_line) {}

  void run() {
    for (std::size_t begin = 0; begin < cases_.size();) {
      const std::int32_t ranks = cases_[begin]->key.ranks;
      std::size_t end = begin;
      while (end < cases_.size() && cases_[end]->key.ranks == ranks) ++end;
      if (Clock::now() < stop_)
        spawn(link_, ranks, options_.deadline, [&](World& world) { run_rank(world, begin, end); });
      begin = end;
    }
  }

 private:
  void run_rank(World& world, std::size_t begin, std::size_t end) {
    const Place place = link_.place_of(world.rank());
    for (std::size_t i = begin; i < end; ++i) {
      if (gather_values(world, std::int32_t{Clock::now() >= stop_})[0] != 0)
        return;  // rank 0's clock decides, so that all ranks stop together
      const auto since = Clock::now();
      report(world, {{"begin", i}});
      const Outcome outcome = check_case(world, *cases_[i], place, options_.deadline, options_.hooks);
      const std::string difference = first_difference(world, outcome);
      std::int32_t num_comparisons = 0;
      for (const std::int32_t of_rank : gather_values(world, outcome.num_comparisons)) num_comparisons += of_rank;
      report(world, {{"end", i},
                     {"difference", difference},
                     {"comparisons", num_comparisons},
                     {"seconds", std::chrono::duration<double>(Clock::now() - since).count()}});
    }
  }

  static std::string first_difference(World& world, const Outcome& outcome) {
    const std::string mine = outcome.difference.substr(0, kMostText);
    for (const auto& bytes : world.all_gather(std::as_bytes(std::span(mine))))
      if (!bytes.empty()) return text_of(bytes);
    return "";
  }

  void report(const World& world, const json& message) const {
    // A message may contain invalid UTF-8.
    if (world.rank().value == 0) send_line_(message.dump(-1, ' ', false, json::error_handler_t::replace));
  }

  const Link& link_;
  const std::vector<const Case*>& cases_;
  const RunOptions& options_;
  Deadline stop_;
  const SendLine& send_line_;
};

/// The parent's side: starts the child of a link, collects outcomes and makes the verdicts.
class LinkSupervisor {
 public:
  LinkSupervisor(const Link& link, const RunOptions& options, Cases& cases)
      : link_(link), options_(options), cases_(cases) {
    keys_ = cases_of(link);
    for (const Layout layout : {Layout::expert_major, Layout::token_unique, Layout::padded}) {
      Verdict& verdict = verdicts_[layout];
      verdict.link = link.name();
      verdict.layout = shunt::to_string(layout);
      verdict.not_offered = not_offered(link, layout);
      verdict.num_cases = static_cast<std::int32_t>(
          std::ranges::count_if(keys_, [layout](const CaseKey& key) { return key.layout == layout; }));
    }
  }

  std::vector<Verdict> run(Deadline stop) {
    std::vector<CaseKey> remaining = keys_;
    while (!remaining.empty() && Clock::now() < stop) {
      current_.reset();
      const std::string why = run_cases(remaining, stop);
      if (why.empty()) break;
      remaining = after_failure(remaining, why);
    }
    return sum_up();
  }

 private:
  std::string run_cases(const std::vector<CaseKey>& keys, Deadline stop) {
    // In the parent, so that links share them.
    std::vector<const Case*> cases;
    for (const CaseKey& key : keys) {
      if (Clock::now() >= stop) break;
      progress(cases.size(), keys.size(), "reference of " + key.describe());
      cases.push_back(&cases_.of(key));
    }
    const auto on_line = [&](const std::string& line) {
      const json message = json::parse(line, nullptr, false);
      if (message.is_discarded()) return;
      if (message.contains("begin")) {
        current_ = message.value("begin", std::size_t{0});
        progress(*current_, keys.size(), keys[*current_].describe());
      } else {
        take_result(keys[message.value("end", std::size_t{0})], message);
        current_.reset();
      }
    };
    const auto part = [&](const SendLine& send_line) { LinkWorker(link_, cases, options_, stop, send_line).run(); };
    return run_in_child(part, on_line, std::max(stop, Clock::now()) + options_.deadline + kSlack);
  }

  void take_result(const CaseKey& key, const json& message) {
    Verdict& verdict = verdicts_[key.layout];
    verdict.seconds += message.value("seconds", 0.0);
    verdict.num_comparisons += message.value("comparisons", 0);
    const std::string difference = message.value("difference", std::string());
    if (difference.empty())
      ++verdict.num_ok;
    else
      fail_with(verdict, fmt::format("{}: {}", key.describe(), difference));
  }

  static void fail_with(Verdict& verdict, const std::string& why) {
    ++verdict.num_failed;
    if (verdict.why.empty()) verdict.why = why;
  }

  /// Marks the layout of the current case as failed and returns the remaining cases of other layouts, for a new world.
  std::vector<CaseKey> after_failure(const std::vector<CaseKey>& keys, const std::string& why) {
    if (!current_) {  // before the first case, or between two
      for (auto& [layout, verdict] : verdicts_)
        if (offers(link_, layout) && verdict.num_ok + verdict.num_failed < verdict.num_cases) fail_with(verdict, why);
      return {};
    }
    const CaseKey failed = keys[*current_];
    fail_with(verdicts_[failed.layout], fmt::format("{}: {}", failed.describe(), why));
    std::vector<CaseKey> rest(keys.begin() + static_cast<std::ptrdiff_t>(*current_) + 1, keys.end());
    std::erase_if(rest, [&](const CaseKey& key) { return key.layout == failed.layout; });
    return rest;
  }

  std::vector<Verdict> sum_up() {
    std::vector<Verdict> all;
    for (auto& [layout, verdict] : verdicts_) {
      const std::int32_t checked = verdict.num_ok + verdict.num_failed;
      if (!offers(link_, layout)) {
        verdict.status = Status::not_offered;
        verdict.why = fmt::format("{} on {}", verdict.not_offered.front(), name_of(link_.engine_kind()));
        verdict.not_offered.clear();
      } else if (verdict.num_failed > 0) {
        verdict.status = Status::failed;
      } else if (checked < verdict.num_cases) {
        verdict.status = Status::incomplete;
        verdict.why = fmt::format("the time was up before {} of {} cases were checked; raise --seconds",
                                  verdict.num_cases - checked, verdict.num_cases);
      }
      all.push_back(verdict);
    }
    return all;
  }

  void progress(std::size_t index, std::size_t count, const std::string& what) const {
    if (options_.on_progress)
      options_.on_progress(fmt::format("{}: {} of {}: {}", link_.name(), index + 1, count, what));
  }

  const Link& link_;
  const RunOptions& options_;
  Cases& cases_;
  std::vector<CaseKey> keys_;
  std::map<Layout, Verdict> verdicts_;
  std::optional<std::size_t> current_;  // index of the running case
};

}  // namespace

std::vector<Verdict> run_checks(const std::vector<Link>& links, const RunOptions& options) {
  const Deadline end = after(Clock::now(), options.seconds);
  Cases cases(options.seed);
  std::vector<Verdict> all;
  for (std::size_t i = 0; i < links.size(); ++i) {
    const auto left = std::chrono::duration<double>(end - Clock::now()).count();
    const double share = left / static_cast<double>(links.size() - i);
    for (Verdict& verdict : LinkSupervisor(links[i], options, cases).run(after(Clock::now(), share))) {
      if (options.on_verdict) options.on_verdict(verdict);
      all.push_back(std::move(verdict));
    }
  }
  return all;
}

}  // namespace shunt::bench::selftest
