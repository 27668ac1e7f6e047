#include "bench/train/measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <numeric>

#include "bench/ranks.hpp"
#include "core/fail.hpp"
#include "core/median.hpp"

namespace shunt::bench {
namespace {

using runtime::ScheduledStep;
using runtime::Trainer;

constexpr double kMs = 1e3;
constexpr double kMostDifference = 1e-5, kMostDifferenceLater = 0.01;

/// Jiffies of all processors, and those of them that were stolen (proc(5)).
struct ProcessorTime {
  double all = 0, stolen = 0;

  static ProcessorTime now() {
    std::ifstream file("/proc/stat");
    std::string name;
    file >> name;
    ProcessorTime time;
    double value = 0;
    for (int field = 0; field < 8 && file >> value; ++field) {
      time.all += value;
      if (field == 7) time.stolen = value;
    }
    return time;
  }
};

bool is_product(const graph::Op& op) {
  using graph::OpKind;
  return op.kind == OpKind::matmul || op.kind == OpKind::grouped_matmul || op.kind == OpKind::attention ||
         op.kind == OpKind::attention_dx;
}

/// A schedule with its trainer.
class Runner {
 public:
  Runner(World& world, const TrainConfig& config, const runtime::Corpus& corpus, std::string schedule,
         ScheduledStep step)
      : world_(world), trainer_(world, config.model, step.graph, corpus, config.training) {
    result_.schedule = std::move(schedule);
    result_.step = std::move(step.graph);
    result_.predicted = std::move(step.predicted);
    result_.predicted_ms = kMs * step.predicted_s;
  }

  void step(bool is_measured) {
    const std::uint64_t sent_before = world_.bytes_sent_to_hosts();
    const Trainer::Step made = trainer_.step();
    result_.losses.push_back(made.bits_per_byte);
    sent_bytes_ = world_.bytes_sent_to_hosts() - sent_before;
    if (!is_measured) {
      growths_ = trainer_.executor().memory().num_growths();
      return;
    }
    result_.step_ms.push_back(kMs * made.step_s);
    result_.exposed_ms.push_back(kMs * made.exposed_s);
    double products = 0, other = 0;
    const graph::Graph& graph = trainer_.executor().graph();
    for (std::size_t i = 0; i < graph.ops().size(); ++i) {
      const graph::Op& op = graph.op(graph::OpId(i));
      if (graph::lane_of(op) != graph::Lane::compute) continue;
      const auto& span = trainer_.executor().times().ops[i];
      (is_product(op) ? products : other) += kMs * (span.end_s - span.begin_s);
    }
    products_.push_back(products);
    other_.push_back(other);
  }

  /// Collective.
  TrainResult end(bool evaluates) {
    result_.measured = trainer_.executor().times().ops;
    if (evaluates) result_.held_out = trainer_.evaluate();
    result_.products_ms = median(products_);
    result_.other_ms = median(other_);
    const auto sent = gather_values(world_, sent_bytes_);
    result_.sent_bytes = std::accumulate(sent.begin(), sent.end(), std::uint64_t{0});
    result_.memory_bytes = trainer_.executor().memory().bytes();
    result_.growths_after_warmup = trainer_.executor().memory().num_growths() - growths_;
    return std::move(result_);
  }
  [[nodiscard]] const TrainResult& result() const { return result_; }

 private:
  World& world_;
  Trainer trainer_;
  TrainResult result_;
  std::vector<double> products_, other_;
  std::uint64_t sent_bytes_ = 0;
  std::int64_t growths_ = 0;
};

/// Collective: changes the rate of all links of the cluster of namespaces.
void set_link_rate(World& world, double mbit) {
  int is_set = 1;
  if (world.rank().value == 0) {
    const char* const tool = std::getenv("NETCLUSTER_TOOL");
    is_set = tool && std::system(fmt::format("'{}' link --host all {:.0f}kbit", tool, 1e3 * mbit).c_str()) == 0 ? 1 : 0;
  }
  if (gather_values(world, is_set)[0] == 0)
    fail(ErrorCode::unsupported, "the rate of links can be set under tools/netcluster only");
}

/// Only the time on the wire depends on the rate, so this converges in a few rounds.
double find_rate(World& world, const TrainConfig& config, const runtime::Corpus& corpus) {
  constexpr int kMostRounds = 12, kSteps = 5;
  constexpr double kClose = 0.01;
  Runner runner(world, config, corpus, "plain", {graph::build_training_step(config.model, world.size())});
  double mbit = 500;
  for (int round = 0; round < kMostRounds; ++round) {
    set_link_rate(world, mbit);
    runner.step(false);
    const std::size_t measured = runner.result().step_ms.size();
    for (int i = 0; i < kSteps; ++i) runner.step(true);
    const auto of_round = [&](const std::vector<double>& all) {
      return median({all.begin() + static_cast<std::ptrdiff_t>(measured), all.end()});
    };
    const double exposed = of_round(runner.result().exposed_ms), step = of_round(runner.result().step_ms);
    const double share = exposed / step;
    if (world.rank().value == 0 && config.progress)
      fmt::print(stderr, "{:.0f} Mbit/s: {:.1f} % of the plain step is exposed communication\n", mbit, 100 * share);
    if (std::abs(share - config.exposed_share) < kClose) break;
    const double wanted = config.exposed_share / (1 - config.exposed_share) * (step - exposed);
    mbit = std::clamp(mbit * exposed / wanted, mbit / 3, mbit * 3);
  }
  return mbit;
}

/// Sums of parts are rounded differently, and in time that changes which expert a token chooses: then trainings part,
/// but learn the same.
void compare_losses(std::vector<TrainResult>& results) {
  const std::vector<double>& first = results[0].losses;
  for (TrainResult& each : results) {
    const auto differs = [&](std::size_t step) {
      return !(std::abs(each.losses[step] - first[step]) <= kMostDifference * first[step]);
    };
    while (each.equal_steps < std::ssize(first) && !differs(static_cast<std::size_t>(each.equal_steps)))
      ++each.equal_steps;
    const double sum = std::accumulate(each.losses.begin(), each.losses.end(), 0.0);
    const double expected = std::accumulate(first.begin(), first.end(), 0.0);
    if (each.equal_steps == 0 || std::abs(sum - expected) > kMostDifferenceLater * expected)
      fail(ErrorCode::internal,
           "{} does not compute what {} does: losses differ from step {} on, and by {:.2g} on average", each.schedule,
           results[0].schedule, each.equal_steps, sum / expected - 1);
  }
}

}  // namespace

double TrainResult::median_step_ms() const { return median(step_ms); }
double TrainResult::median_exposed_ms() const { return median(exposed_ms); }

TrainReport measure_training(World& world, const TrainConfig& config, const runtime::Corpus& corpus) {
  const bool shows = config.progress && world.rank().value == 0;
  TrainReport report;
  if (config.exposed_share > 0) report.rate_mbit = find_rate(world, config, corpus);
  if (shows) fmt::print(stderr, "profiling single ops\n");
  const runtime::Profile profile = runtime::measure_profile(world, config.model, corpus, config.training);
  std::vector<std::unique_ptr<Runner>> runners;
  for (const std::string& schedule : config.schedules) {
    if (shows) fmt::print(stderr, "scheduling {}\n", schedule);
    runners.push_back(std::make_unique<Runner>(world, config, corpus, schedule,
                                               runtime::make_scheduled_step(world, config.model, schedule, profile)));
  }
  const ProcessorTime before = ProcessorTime::now();
  for (std::int64_t turn = 0; turn < config.warmup + config.turns; ++turn) {
    if (shows) fmt::print(stderr, "\rturn {} of {}   ", turn + 1, config.warmup + config.turns);
    for (std::size_t i = 0; i < runners.size(); ++i)
      runners[(i + static_cast<std::size_t>(turn)) % runners.size()]->step(turn >= config.warmup);
  }
  if (shows) fmt::print(stderr, "\n");
  const ProcessorTime after = ProcessorTime::now();
  report.stolen_share = (after.stolen - before.stolen) / std::max(after.all - before.all, 1.0);
  for (const auto& runner : runners) report.results.push_back(runner->end(config.evaluates));
  compare_losses(report.results);
  return report;
}

}  // namespace shunt::bench
