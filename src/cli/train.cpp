// shunt train: trains a byte-level Mixture-of-Experts transformer with expert and data parallelism.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/output.hpp"
#include "cli/signals.hpp"
#include "cli/training.hpp"
#include "cli/verbs.hpp"
#include "core/fail.hpp"
#include "core/file.hpp"
#include "core/median.hpp"
#include "graph/simulate.hpp"
#include "runtime/scheduled_step.hpp"

namespace shunt::cli {
namespace {

using runtime::Corpus, runtime::Trainer;

constexpr const char* kFooter = R"(
Predicts the next byte of a text. Every rank has its own part of the experts and of each batch, and a copy of all other
parameters; rows travel between ranks as in any model that uses shunt, gradients are summed over all ranks.

A step is the graph that `shunt schedule` makes, executed on two lanes per rank: one thread computes, one communicates.
  plain   program order: an operation waits only for what it needs, so sums of gradients already overlap
  tutel   all-to-alls and experts pipelined
  lancet  forward ranges pipelined, weight gradients behind all-to-alls
  shunt   all passes: split, pipelined and reordered for this machine

The text is a file (its last tenth is held out), a folder (a tenth of the files by the hash of their paths), or else the
sources and documents of this program's repository.

Examples:
  shunt train --steps 200
  shunt train --corpus notes.txt --model bytes --batch 16 --schedule shunt --trace step.json
  shunt train --schedule shunt --link-rate 500 --steps 100
  mpirun -n 4 shunt train --world env --steps 1000 --json run.json
)";

struct Arguments {
  TrainingArguments training;
  std::string schedule = "plain", checkpoint, json, trace, progress = "auto";
  std::int64_t checkpoint_every = 0, evaluate_every = 0, most_held_out = 0;
  bool resumes = false, profiles = false;

  [[nodiscard]] std::int64_t steps() const { return training.options.steps; }
};

using runtime::ScheduledStep;

/// Collective. The predicted time is 0 if nothing was measured.
ScheduledStep step_of(World& world, const Arguments& arguments, const graph::Model& model, const Corpus& corpus) {
  if (arguments.schedule == "plain" && !arguments.profiles) return {graph::build_training_step(model, world.size())};
  const runtime::Profile profile = runtime::measure_profile(world, model, corpus, arguments.training.options);
  return runtime::make_scheduled_step(world, model, arguments.schedule, profile);
}

/// Set by the first SIGINT or SIGTERM; a second one ends the process. Ranks that are forked share it.
std::atomic<int>* asked_to_stop = nullptr;

void ask_to_stop(int signal_number) {
  *asked_to_stop = signal_number;
  signal(signal_number, SIG_DFL);
}

void listen_for_signals() {
  void* const shared =
      mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) fail_errno("can't map memory");
  asked_to_stop = new (shared) std::atomic<int>(0);
  for (const int number : {SIGINT, SIGTERM})
    if (signal(number, ask_to_stop) == SIG_IGN) signal(number, SIG_IGN);  // as under nohup
}

/// A line that is replaced.
class Progress {
 public:
  Progress(const Arguments& arguments, std::int64_t bytes_per_step)
      : is_on_(arguments.progress == "on" || (arguments.progress == "auto" && isatty(STDERR_FILENO))),
        steps_(arguments.steps()),
        bytes_per_step_(static_cast<double>(bytes_per_step)) {}

  /// After each step. The rates are those of steps alone.
  void show(std::int64_t steps_done, const Trainer::Step& step) {
    ++num_steps_;
    stepped_s_ += step.step_s;
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    if (!is_on_ || (seconds - shown_s_ < 0.5 && steps_done != steps_)) return;
    shown_s_ = seconds;
    is_shown_ = true;
    const double per_step = stepped_s_ / static_cast<double>(num_steps_);
    fmt::print(stderr, "\rstep {}/{}  {:.3f} bits/byte  {:.0f} bytes/s  exposed {:.0f} %  {:.0f} s left   ", steps_done,
               steps_, step.bits_per_byte, bytes_per_step_ / per_step, 100 * step.exposed_s / step.step_s,
               per_step * static_cast<double>(steps_ - steps_done));
  }
  void end() {
    if (std::exchange(is_shown_, false)) fmt::print(stderr, "\n");
  }

 private:
  using Clock = std::chrono::steady_clock;

  bool is_on_;
  std::int64_t steps_;
  double bytes_per_step_;
  Clock::time_point start_ = Clock::now();
  double shown_s_ = 0, stepped_s_ = 0;
  std::int64_t num_steps_ = 0;
  bool is_shown_ = false;
};

void run_rank(World& world, const Arguments& arguments, const graph::Model& model, const Corpus& corpus) {
  const bool reports = world.rank().value == 0;
  const ScheduledStep scheduled = step_of(world, arguments, model, corpus);
  Trainer trainer(world, model, scheduled.graph, corpus, arguments.training.options);
  Progress progress(arguments, model.sequences_per_rank * model.sequence * world.size());
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  std::vector<double> losses, step_ms, exposed_ms;
  nlohmann::ordered_json held_out = nlohmann::ordered_json::array();
  const auto evaluate = [&] {
    const double bits = trainer.evaluate(arguments.most_held_out);
    if (!reports) return;
    held_out.push_back({{"step", trainer.steps_done()}, {"bits_per_byte", bits}, {"seconds", elapsed()}});
    progress.end();
    fmt::print("step {:>6}  held-out {:.4f} bits/byte  {:.1f} s\n", trainer.steps_done(), bits, elapsed());
    flush_stdout();
  };
  if (arguments.resumes) {
    trainer.resume(arguments.checkpoint);
    if (reports) fmt::print("resumed {} at step {}\n", arguments.checkpoint, trainer.steps_done());
  }
  bool stops = trainer.any(asked_to_stop->load() != 0);
  while (trainer.steps_done() < arguments.steps() && !stops) {
    const Trainer::Step made = trainer.step(asked_to_stop->load() != 0);
    stops = made.stops;
    losses.push_back(made.bits_per_byte);
    step_ms.push_back(1e3 * made.step_s);
    exposed_ms.push_back(1e3 * made.exposed_s);
    if (reports) progress.show(trainer.steps_done(), made);
    const bool is_last = trainer.steps_done() == arguments.steps();
    const bool is_due = arguments.checkpoint_every > 0 && trainer.steps_done() % arguments.checkpoint_every == 0;
    if (!arguments.checkpoint.empty() && (is_last || is_due || stops)) trainer.save(arguments.checkpoint);
    if (is_last || (arguments.evaluate_every > 0 && trainer.steps_done() % arguments.evaluate_every == 0)) evaluate();
  }
  progress.end();
  if (!reports) return;
  if (stops)
    fmt::print("stopped at step {}; {}\n", trainer.steps_done(),
               arguments.checkpoint.empty() ? std::string("nothing was saved, as there is no --checkpoint")
                                            : fmt::format("--resume continues from {}", arguments.checkpoint));
  if (losses.empty()) {
    fmt::print("nothing left to do: {} of {} steps are done\n", trainer.steps_done(), arguments.steps());
    return;
  }
  const auto bytes_per_step = static_cast<double>(model.sequences_per_rank * model.sequence * world.size());
  fmt::print(
      "{} steps, median {:.1f} ms, exposed communication {:.1f} ms, {:.0f} bytes/s; memory of values {:.1f} MB\n",
      losses.size(), median(step_ms), median(exposed_ms), 1e3 * bytes_per_step / median(step_ms),
      static_cast<double>(trainer.executor().memory().bytes()) / 1e6);
  if (scheduled.predicted_s > 0)
    fmt::print("predicted {:.1f} ms, {:+.1f} % of the measured step\n", 1e3 * scheduled.predicted_s,
               100 * (1e3 * scheduled.predicted_s / median(step_ms) - 1));
  if (!arguments.trace.empty()) {
    const graph::Graph& executed = trainer.executor().graph();
    const graph::CostModel cost(Cluster::load("v100x1"));
    const graph::Program program = graph::make_program(executed, cost);
    graph::Timeline timeline;
    for (const graph::Task& task : program.tasks)
      timeline.spans.push_back(trainer.executor().times().ops[task.op.index()]);
    write_file(arguments.trace, graph::chrome_trace(executed, program, timeline));
  }
  if (arguments.json.empty()) return;
  nlohmann::ordered_json json = {{"config", config_json(arguments.training, model, world.size())}};
  json["config"]["steps"] = arguments.steps();
  json["runs"] = {{{"schedule", arguments.schedule},
                   {"shuffle", "fused"},
                   {"step_ms", median(step_ms)},
                   {"exposed_comm_ms", median(exposed_ms)},
                   {"predicted_step_ms", 1e3 * scheduled.predicted_s},
                   {"timeline",
                    {{"measured", timeline_json(trainer.executor().graph(), trainer.executor().times().ops)},
                     {"predicted", timeline_json(scheduled.graph, scheduled.predicted)}}},
                   {"losses", losses},
                   {"held_out", held_out}}};
  write_file(arguments.json, json.dump(2) + "\n");
}

void run(Arguments& arguments) {
  if (arguments.resumes && arguments.checkpoint.empty())
    fail(ErrorCode::invalid_argument, "--resume: which --checkpoint?");
  if (arguments.resumes) (void)runtime::read_training_state(arguments.checkpoint);
  for (const std::string& path : {arguments.json, arguments.trace, arguments.checkpoint})
    if (!path.empty()) check_writable(path);
  listen_for_signals();
  run_training(arguments.training, [&](World& world, const graph::Model& model, const Corpus& corpus) {
    run_rank(world, arguments, model, corpus);
  });
  if (const int number = asked_to_stop->load()) end_by_signal(number);
}

}  // namespace

void add_train(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* verb = app.add_subcommand("train", "Train a byte-level Mixture-of-Experts transformer on a text");
  verb->footer(kFooter);
  verb->option_defaults()->always_capture_default()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_training_options(*verb, arguments->training);
  verb->add_option("--schedule", arguments->schedule, "plain, tutel, lancet or shunt")
      ->check(CLI::IsMember(runtime::schedule_names()));
  verb->add_flag("--profile", arguments->profiles,
                 "Measure single ops first and predict the step; other schedules than plain always do");
  verb->add_option("--steps", arguments->training.options.steps, "Steps of the whole training")
      ->check(CLI::PositiveNumber);
  verb->add_option("--evaluate-every", arguments->evaluate_every, "Steps between evaluations; 0: at the end only");
  verb->add_option("--held-out-bytes", arguments->most_held_out, "Held-out bytes to evaluate on; 0: all");
  verb->add_option("--checkpoint", arguments->checkpoint,
                   "Save to this file at the end, when Ctrl-C stops the training, and as --checkpoint-every says");
  verb->add_option("--checkpoint-every", arguments->checkpoint_every, "Steps between checkpoints; 0: at the end only");
  verb->add_flag("--resume", arguments->resumes, "Continue from --checkpoint; ranks and schedule may differ");
  verb->add_option("--json", arguments->json, "Write the results to this file");
  verb->add_option("--trace", arguments->trace,
                   "Write the last step's trace for chrome://tracing or Perfetto to this file");
  verb->add_option("--progress", arguments->progress, "on, off or auto (on a terminal)")
      ->check(CLI::IsMember({"on", "off", "auto"}));
  verb->callback([arguments] { run(*arguments); });
}

}  // namespace shunt::cli
