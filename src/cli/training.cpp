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
  if (arguments.world == "env") {
    World world = World::from_environment();
    return body(world, model, corpus);
  }
  SpawnOptions options;
  if (arguments.world == "shm") options.kind = WorldKind::shm;
  World::spawn(
      ranks, [&](World& world) { body(world, model, corpus); }, options);
}

nlohmann::ordered_json config_json(const TrainingArguments& arguments, const graph::Model& model, std::int32_t ranks) {
  return {{"model", model.name},
          {"ranks", ranks},
          {"batch", model.sequences_per_rank * ranks},
          {"sequence", model.sequence},
          {"seed", arguments.options.seed}};
}

}  // namespace shunt::cli
