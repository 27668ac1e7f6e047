#include "cli/training.hpp"

#include "cli/launch.hpp"
#include "core/fail.hpp"

namespace shunt::cli {

void add_training_options(CLI::App& verb, TrainingArguments& arguments) {
  runtime::TrainerOptions& options = arguments.options;
  verb.add_option("--model", arguments.model, "A preset, or a JSON file with a vocabulary of at least 256");
  verb.add_option("--corpus", arguments.corpus, "A file or a folder of text; by default this program's repository");
  verb.add_option("--ranks", arguments.ranks, "Ranks; with --world env the launcher sets the number")
      ->check(CLI::Range(1, 1024));
  verb.add_option("--world", arguments.world, "shm (processes), inproc (threads), or env (ranks started by a launcher)")
      ->check(CLI::IsMember({"shm", "inproc", "env"}));
  verb.add_option(
          "--link-rate", arguments.link_mbit,
          "Emulate a cluster: each rank is a machine of its own, which sends this many Mbit/s over loopback TCP")
      ->check(CLI::NonNegativeNumber);
  verb.add_option("--batch", arguments.batch, "Sequences per step of all ranks together; 0: as the model says")
      ->check(CLI::NonNegativeNumber);
  verb.add_option("--rate", arguments.rate, "Highest learning rate; 0: as the model says")
      ->check(CLI::NonNegativeNumber);
  verb.add_option("--warmup", options.warmup, "Steps in which the rate rises")->check(CLI::PositiveNumber);
  verb.add_option("--seed", options.seed, "Seed of parameters and batches");
}

void run_training(TrainingArguments& arguments,
                  const std::function<void(World&, const graph::Model&, const runtime::Corpus&)>& body) {
  graph::Model model = graph::Model::load(arguments.model, "cpu");
  constexpr std::int64_t kBytes = 256;
  if (model.vocabulary < kBytes)
    fail(ErrorCode::invalid_argument, "{}: has a vocabulary of {}, and bytes need {}", model.name, model.vocabulary,
         kBytes);
  if (model.dtype != f32)
    fail(ErrorCode::unsupported, "{}: is of {}, and steps are executed in f32 only", model.name,
         to_string(model.dtype));
  const std::int32_t ranks = arguments.world == "env" ? launch_of(0).size : arguments.ranks;
  if (arguments.batch % ranks != 0)
    fail(ErrorCode::invalid_argument, "--batch {}: {} ranks can't share it evenly", arguments.batch, ranks);
  if (arguments.batch > 0) model.sequences_per_rank = arguments.batch / ranks;
  arguments.options.rate = arguments.rate > 0 ? arguments.rate : model.optimizer.rate;
  const auto least_bytes = static_cast<std::size_t>(model.sequence) + 1;
  const runtime::Corpus corpus = arguments.corpus.empty() ? runtime::read_own_repository(least_bytes)
                                                          : runtime::read_corpus(arguments.corpus, least_bytes);
  Environment environment = Environment::read();
  if (arguments.link_mbit > 0) {
    if (arguments.world == "inproc")
      fail(ErrorCode::invalid_argument, "--link-rate: needs ranks that are processes, --world shm or env");
    constexpr double kBytesPerMbit = 1e6 / 8;
    environment.network.link_bytes_per_s = static_cast<std::int64_t>(arguments.link_mbit * kBytesPerMbit);
  }
  if (arguments.world == "env") {
    World world = World::create(*Bootstrap::from_environment(environment), {.environment = environment});
    return body(world, model, corpus);
  }
  SpawnOptions options{.environment = environment};
  if (arguments.world == "shm") options.kind = WorldKind::shm;
  World::spawn(
      ranks, [&](World& world) { body(world, model, corpus); }, options);
}

nlohmann::ordered_json timeline_json(const graph::Graph& graph, const std::vector<graph::Timeline::Span>& ops) {
  nlohmann::ordered_json spans = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const graph::Op& op = graph.op(graph::OpId(i));
    if (graph::lane_of(op) == graph::Lane::none) continue;
    spans.push_back({{"lane", graph::lane_of(op) == graph::Lane::compute ? "compute" : "comm"},
                     {"op", graph::info(op.kind).name},
                     {"layer", op.origin.layer},
                     {"phase", graph::to_string(op.origin.phase)},
                     {"begin_ms", 1e3 * ops[i].begin_s},
                     {"end_ms", 1e3 * ops[i].end_s}});
  }
  return spans;
}

nlohmann::ordered_json config_json(const TrainingArguments& arguments, const graph::Model& model, std::int32_t ranks) {
  return {{"model", model.name},
          {"ranks", ranks},
          {"batch", model.sequences_per_rank * ranks},
          {"sequence", model.sequence},
          {"emulated_link_mbit", arguments.link_mbit},
          {"seed", arguments.options.seed}};
}

}  // namespace shunt::cli
