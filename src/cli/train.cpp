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

#include "cli/launch.hpp"
#include "cli/output.hpp"
#include "cli/signals.hpp"
#include "cli/verbs.hpp"
#include "core/fail.hpp"
#include "core/file.hpp"
#include "graph/passes/tutel.hpp"
#include "graph/schedule.hpp"
#include "graph/simulate.hpp"
#include "graph/text.hpp"
#include "runtime/profile.hpp"

namespace shunt::cli {
namespace {

using runtime::Corpus, runtime::Trainer;

constexpr const char* kFooter = R"(
Predicts the next byte of a text. Every rank has its own part of the experts and of each batch, and a copy of all other
parameters; rows travel between ranks as in any model that uses shunt, gradients are summed over all ranks.

A step is the graph that `shunt schedule` makes, executed on two lanes per rank: one thread computes, one communicates.
  plain   program order: every operation waits for the ones before it
  tutel   all-to-alls and experts pipelined
  shunt   all passes: split, pipelined and reordered for this machine

The text is a file (its last tenth is held out), a folder (a tenth of the files by the hash of their paths), or else the
sources and documents of this program's repository.

Examples:
  shunt train --steps 200
  shunt train --corpus notes.txt --model bytes --batch 16 --schedule shunt --trace step.json
  mpirun -n 4 shunt train --world env --steps 1000 --json run.json
)";

struct Arguments {
  std::string checkpoint;
  std::int64_t checkpoint_every = 0;
  bool resumes = false, profiles = false;
  std::string model = "bytes", corpus, world = "shm", schedule = "plain", json, trace, progress = "auto";
  std::int32_t ranks = 2;
  std::int64_t batch = 0, evaluate_every = 0, most_held_out = 0;
  runtime::TrainerOptions options{.steps = 200};
  double rate = 0;
};

/// A step in the order that was asked for, and what simulation predicts for it; 0: nothing was measured.
struct Scheduled {
  graph::Graph graph;
  double predicted_s = 0;
};

/// Collective. Rank 0 schedules, as all ranks must have the same order.
Scheduled schedule(World& world, const Arguments& arguments, const graph::Model& model, const Corpus& corpus) {
  graph::Graph plain = graph::build_training_step(model, world.size());
  if (arguments.schedule == "plain" && !arguments.profiles) return {std::move(plain)};
  const runtime::Profile profile = runtime::measure_profile(world, model, corpus, arguments.options);
  const graph::CostModel cost(profile.cluster, {.table = &profile.table});
  std::string text;
  if (world.rank().value == 0) {
    if (arguments.schedule == "tutel")
      plain = tutel(plain, cost).graph;
    else if (arguments.schedule == "shunt")
      plain = graph::make_schedule(model, cost, {}).graph;
    text = graph::print(plain);
  }
  const auto texts = world.all_gather(std::as_bytes(std::span(text)));
  Scheduled made{graph::parse({reinterpret_cast<const char*>(texts[0].data()), texts[0].size()}, "rank 0's schedule")};
  made.predicted_s = graph::evaluate(made.graph, cost).timeline.step_s;
  return made;
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
  for (const int number : {SIGINT, SIGTERM}) signal(number, ask_to_stop);
}

/// One line on a terminal that is replaced; lines elsewhere.
class Progress {
 public:
  Progress(const Arguments& arguments, std::int64_t bytes_per_step)
      : is_on_(arguments.progress == "on" || (arguments.progress == "auto" && isatty(STDERR_FILENO))),
        steps_(arguments.options.steps),
        bytes_per_step_(static_cast<double>(bytes_per_step)) {}

  void show(std::int64_t steps_done, const Trainer::Step& step) {
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    if (!is_on_ || (seconds - shown_ < 0.5 && steps_done != steps_)) return;
    shown_ = seconds;
    const double per_step = seconds / static_cast<double>(steps_done);
    fmt::print(stderr, "\rstep {}/{}  {:.3f} bits/byte  {:.0f} tokens/s  exposed {:.0f} %  {:.0f} s left   ",
               steps_done, steps_, step.bits_per_byte, bytes_per_step_ / per_step, 100 * step.exposed_s / step.step_s,
               per_step * static_cast<double>(steps_ - steps_done));
  }
  void end() const {
    if (is_on_) fmt::print(stderr, "\n");
  }

 private:
  using Clock = std::chrono::steady_clock;

  bool is_on_;
  std::int64_t steps_;
  double bytes_per_step_;
  Clock::time_point start_ = Clock::now();
  double shown_ = 0;
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

void run_rank(World& world, const Arguments& arguments, const graph::Model& model, const Corpus& corpus) {
  const bool reports = world.rank().value == 0;
  const Scheduled scheduled = schedule(world, arguments, model, corpus);
  Trainer trainer(world, model, scheduled.graph, corpus, arguments.options);
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
  bool stops = false;
  while (trainer.steps_done() < arguments.options.steps && !stops) {
    const Trainer::Step made = trainer.step(asked_to_stop->load() != 0);
    stops = made.stops;
    losses.push_back(made.bits_per_byte);
    step_ms.push_back(1e3 * made.step_s);
    exposed_ms.push_back(1e3 * made.exposed_s);
    if (reports) progress.show(trainer.steps_done(), made);
    const bool is_last = trainer.steps_done() == arguments.options.steps;
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
  const nlohmann::ordered_json json = {{"config",
                                        {{"model", model.name},
                                         {"ranks", world.size()},
                                         {"batch", model.sequences_per_rank * world.size()},
                                         {"sequence", model.sequence},
                                         {"steps", arguments.options.steps},
                                         {"seed", arguments.options.seed}}},
                                       {"runs",
                                        {{{"schedule", arguments.schedule},
                                          {"shuffle", "fused"},
                                          {"step_ms", median(step_ms)},
                                          {"exposed_comm_ms", median(exposed_ms)},
                                          {"predicted_step_ms", 1e3 * scheduled.predicted_s},
                                          {"losses", losses},
                                          {"held_out", held_out}}}}};
  write_file(arguments.json, json.dump(2) + "\n");
}

void run(Arguments& arguments) {
  graph::Model model = graph::Model::load(arguments.model, "cpu");
  std::int32_t ranks = arguments.ranks;
  if (arguments.world == "env") ranks = launch_of(0).size;
  if (arguments.batch > 0) {
    if (arguments.batch % ranks != 0)
      fail(ErrorCode::invalid_argument, "--batch {}: {} ranks can't share it evenly", arguments.batch, ranks);
    model.sequences_per_rank = arguments.batch / ranks;
  }
  if (model.vocabulary < 256) fail(ErrorCode::invalid_argument, "{}: bytes need a vocabulary of 256", model.name);
  arguments.options.rate = arguments.rate > 0 ? arguments.rate : model.optimizer.rate;
  for (const std::string& path : {arguments.json, arguments.trace, arguments.checkpoint})
    if (!path.empty()) check_writable(path);
  const auto least_bytes = static_cast<std::size_t>(model.sequence) + 1;
  const Corpus corpus = arguments.corpus.empty() ? runtime::read_own_repository(least_bytes)
                                                 : runtime::read_corpus(arguments.corpus, least_bytes);
  if (arguments.resumes && arguments.checkpoint.empty())
    fail(ErrorCode::invalid_argument, "--resume: which --checkpoint?");
  if (arguments.resumes) (void)runtime::read_training_state(arguments.checkpoint);
  listen_for_signals();
  if (arguments.world == "env") {
    World world = World::from_environment();
    return run_rank(world, arguments, model, corpus);
  }
  SpawnOptions options;
  if (arguments.world == "shm") options.kind = WorldKind::shm;
  World::spawn(
      ranks, [&](World& world) { run_rank(world, arguments, model, corpus); }, options);
  if (const int number = asked_to_stop->load()) end_by_signal(number);
}

}  // namespace

void add_train(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  runtime::TrainerOptions& options = arguments->options;
  CLI::App* verb = app.add_subcommand("train", "Train a byte-level Mixture-of-Experts transformer on a text");
  verb->footer(kFooter);
  verb->option_defaults()->always_capture_default();
  verb->add_option("--model", arguments->model, "A preset, or a JSON file with a vocabulary of at least 256");
  verb->add_option("--corpus", arguments->corpus, "A file or a folder of text; by default this program's repository");
  verb->add_option("--ranks", arguments->ranks, "Ranks; with --world env the launcher sets the number")
      ->check(CLI::Range(1, 1024));
  verb->add_option("--world", arguments->world,
                   "shm (processes), inproc (threads), or env (ranks started by a launcher)")
      ->check(CLI::IsMember({"shm", "inproc", "env"}));
  verb->add_option("--schedule", arguments->schedule, "plain, tutel or shunt")
      ->check(CLI::IsMember({"plain", "tutel", "shunt"}));
  verb->add_flag("--profile", arguments->profiles,
                 "Measure single ops first and predict the step; other schedules than plain always do");
  verb->add_option("--steps", options.steps, "Steps of the whole training")->check(CLI::PositiveNumber);
  verb->add_option("--batch", arguments->batch, "Sequences per step of all ranks together; 0: as the model says");
  verb->add_option("--rate", arguments->rate, "Highest learning rate; 0: as the model says");
  verb->add_option("--warmup", options.warmup, "Steps in which the rate rises")->check(CLI::PositiveNumber);
  verb->add_option("--seed", options.seed, "Seed of parameters and batches");
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
