// shunt bench train: training steps in several schedules, beside each other in one run.
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/train/measure.hpp"
#include "cli/launch.hpp"
#include "cli/output.hpp"
#include "cli/training.hpp"
#include "cli/verbs.hpp"
#include "core/fail.hpp"
#include "core/file.hpp"

namespace shunt::cli {
namespace {

constexpr const char* kFooter = R"(
Executes the training step of `shunt train` in several schedules, in turn, on the same batches; a turn is one step of
each. Losses are compared with the first schedule's: all compute the same. Before, single ops are profiled; their
times make the schedules, and the prediction that is printed beside each measured step.

Exposed is the time in which a rank's compute lane waits for communication or for a late peer. Ratios are of steps in
one turn: median (least to most).

Examples:
  shunt bench train --schedules plain,shunt
  tools/netcluster --hosts 2 --rate 600mbit -- shunt bench train --world env --json train.json
  tools/netcluster --hosts 2 --rate auto -- shunt bench train --world env --exposed 0.4
)";

struct Arguments {
  TrainingArguments training;
  std::vector<std::string> schedules = runtime::schedule_names();
  std::int64_t turns = 7, warmup = 2;
  double exposed = 0;
  bool evaluates = false;
  std::string json, progress = "auto";
};

/// "1.31 (1.25 to 1.40)": how many times as fast as the first, by turn.
std::string ratio_over(const std::vector<double>& first, const std::vector<double>& own) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < own.size(); ++i) ratios.push_back(first[i] / own[i]);
  std::ranges::sort(ratios);
  return fmt::format("{:.2f} ({:.2f} to {:.2f})", ratios[ratios.size() / 2], ratios.front(), ratios.back());
}

void print_report(const bench::TrainReport& report, const graph::Model& model, std::int32_t ranks, double link_mbit) {
  fmt::print("{}: {} ranks, {} sequences of {} bytes per step\n", model.name, ranks, model.sequences_per_rank * ranks,
             model.sequence);
  if (link_mbit > 0) fmt::print("emulated links: each rank sends at most {:g} Mbit/s over loopback TCP\n", link_mbit);
  if (report.rate_mbit > 0) fmt::print("links set to {:.0f} Mbit/s\n", report.rate_mbit);
  fmt::print("processor time stolen meanwhile: {:.1f} %\n\n", 100 * report.stolen_share);
  fmt::print("{:<10}{:>9}{:>12}{:>8}{:>10}{:>8}{:>12}{:>10}{:>10}  {}\n", "schedule", "step ms", "exposed ms", "share",
             "products", "other", "predicted", "error", "sent MB", "times as fast as " + report.results[0].schedule);
  for (const bench::TrainResult& each : report.results) {
    const double step = each.median_step_ms(), exposed = each.median_exposed_ms();
    fmt::print("{:<10}{:>9.1f}{:>12.1f}{:>7.1f}%{:>10.1f}{:>8.1f}{:>12.1f}{:>9.1f}%{:>10.2f}  {}\n", each.schedule,
               step, exposed, 100 * exposed / step, each.products_ms, each.other_ms, each.predicted_ms,
               100 * (each.predicted_ms / step - 1), static_cast<double>(each.sent_bytes) / 1e6,
               ratio_over(report.results[0].step_ms, each.step_ms));
  }
  for (const bench::TrainResult& each : report.results)
    if (each.held_out > 0)
      fmt::print("{}: {:.3f} bits per byte of held-out text after {} steps\n", each.schedule, each.held_out,
                 each.losses.size());
  for (const bench::TrainResult& each : report.results)
    if (each.equal_steps < std::ssize(each.losses))
      fmt::print("{}: losses are {}'s within 1e-5 for {} steps, then some token chose another expert\n", each.schedule,
                 report.results[0].schedule, each.equal_steps);
  const double first = report.results[0].median_exposed_ms();
  for (std::size_t i = 1; i < report.results.size() && first > 0; ++i)
    fmt::print("{}{} exposes {:.1f} % less than {}\n", i == 1 ? "\n" : "", report.results[i].schedule,
               100 * (1 - report.results[i].median_exposed_ms() / first), report.results[0].schedule);
}

void write_json(const Arguments& arguments, const bench::TrainReport& report, const graph::Model& model,
                std::int32_t ranks) {
  nlohmann::ordered_json json = {{"config", config_json(arguments.training, model, ranks)}};
  json["config"]["link_mbit"] = report.rate_mbit;
  json["config"]["stolen_share"] = report.stolen_share;
  for (const bench::TrainResult& each : report.results) {
    nlohmann::ordered_json held_out = nlohmann::ordered_json::array();
    if (each.held_out > 0) held_out.push_back({{"step", each.losses.size()}, {"bits_per_byte", each.held_out}});
    json["runs"].push_back({{"schedule", each.schedule},
                            {"shuffle", "fused"},
                            {"step_ms", each.median_step_ms()},
                            {"exposed_comm_ms", each.median_exposed_ms()},
                            {"products_ms", each.products_ms},
                            {"other_compute_ms", each.other_ms},
                            {"cross_node_bytes", each.sent_bytes},
                            {"predicted_step_ms", each.predicted_ms},
                            {"held_out", held_out},
                            {"timeline",
                             {{"measured", timeline_json(each.step, each.measured)},
                              {"predicted", timeline_json(each.step, each.predicted)}}},
                            {"memory_bytes", each.memory_bytes},
                            {"growths_after_warmup", each.growths_after_warmup},
                            {"steps_ms", each.step_ms},
                            {"equal_steps", each.equal_steps},
                            {"losses", each.losses}});
  }
  write_file(arguments.json, json.dump(2) + "\n");
}

void run(Arguments& arguments) {
  if (arguments.schedules.empty()) fail(ErrorCode::invalid_argument, "--schedules: expected at least one");
  if (!arguments.json.empty()) check_writable(arguments.json);
  arguments.training.options.steps = arguments.warmup + arguments.turns;
  run_training(arguments.training, [&](World& world, const graph::Model& model, const runtime::Corpus& corpus) {
    bench::TrainConfig config{
        .model = model,
        .schedules = arguments.schedules,
        .training = arguments.training.options,
        .warmup = arguments.warmup,
        .turns = arguments.turns,
        .exposed_share = arguments.exposed,
        .evaluates = arguments.evaluates,
        .progress = arguments.progress == "on" || (arguments.progress == "auto" && isatty(STDERR_FILENO))};
    const bench::TrainReport report = bench::measure_training(world, config, corpus);
    if (world.rank().value != 0) return;
    print_report(report, model, world.size(), arguments.training.link_mbit);
    if (!arguments.json.empty()) write_json(arguments, report, model, world.size());
    flush_stdout();
  });
}

}  // namespace

void add_bench_train(CLI::App& bench) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* verb = bench.add_subcommand("train", "Training steps in several schedules");
  verb->footer(kFooter);
  verb->option_defaults()->always_capture_default()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_training_options(*verb, arguments->training);
  verb->add_option("--schedules", arguments->schedules,
                   "Any of plain, tutel, lancet and shunt; ratios are over the first")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->check(CLI::IsMember(runtime::schedule_names()));
  verb->add_option("--turns", arguments->turns, "Measured steps of each schedule")->check(CLI::PositiveNumber);
  verb->add_option("--warmup-turns", arguments->warmup, "Steps of each before them");
  verb->add_option("--exposed", arguments->exposed,
                   "Set the links' rate so that this share of the plain step is exposed communication; under "
                   "tools/netcluster --rate auto")
      ->check(CLI::Range(0.0, 0.95));
  verb->add_flag("--evaluate", arguments->evaluates, "Also evaluate the held-out text at the end");
  verb->add_option("--json", arguments->json, "Write the results to this file");
  verb->add_option("--progress", arguments->progress, "on, off or auto (on a terminal)")
      ->check(CLI::IsMember({"on", "off", "auto"}));
  verb->callback([arguments] { run(*arguments); });
}

}  // namespace shunt::cli
