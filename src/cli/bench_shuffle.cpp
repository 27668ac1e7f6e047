// shunt bench shuffle: how fast tokens get to their experts and back, beside the conventional ways.
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "cli/shuffle/config.hpp"
#include "cli/shuffle/launch.hpp"
#include "cli/shuffle/measure.hpp"
#include "cli/shuffle/report.hpp"
#include "cli/verbs.hpp"
#include "core/fail.hpp"
#include "shunt/world.hpp"

namespace shunt::cli {
namespace {

constexpr const char* kFooter = R"(
Systems, all measured in one run, iteration by iteration, after their outputs were verified:
  shunt          every row is read once and written once, into its final slot
  mpi_alltoallv  permute, MPI_Alltoallv, permute; the better of cached and streaming permutes
  unfused        the same three steps over shunt's own transport

Routings:
  uniform        every expert equally likely
  zipf:A         expert i drawn in proportion to 1/(i+1)^A
  node-local     all experts of a token on one node, drawn uniformly
  bimodal        half of the ranks hold experts that draw three times the tokens of the others
  clustered:G    experts in G groups, a token's experts mostly from one
  trace:FILE     one token per line: its experts, separated by spaces

Examples:
  shunt bench shuffle --ranks 4
  shunt bench shuffle --tokens 128 --hidden 7168 --experts 256      decode-sized batches
  shunt bench shuffle --world inproc --layout token_unique --dtype fp8_e4m3
  mpirun -n 4 shunt bench shuffle --world env --json result.json
)";

struct Arguments {
  ShuffleConfig config;
  std::string dtype = "bf16";
  std::string layout = "expert_major";
  std::string progress = "auto";
};

void run_rank(World& world, const ShuffleConfig& config, const std::string& world_name) {
  const ShuffleResult result = measure(world, config);
  if (world.rank().value != 0) return;
  print_report(config, result, world_name);
  if (!config.json.empty()) write_json(config, result, world_name);
}

void run_under_launcher(ShuffleConfig config) {
  if (std::getenv("OMPI_COMM_WORLD_SIZE")) die_with_launcher();
  setenv("SHUNT_VIRTUAL_NODES", std::to_string(config.nodes).c_str(), 1);
  World world = World::from_environment();
  config.ranks = world.size();
  config.check();
  run_rank(world, config, "shm");
}

void run(Arguments& arguments) {
  ShuffleConfig& config = arguments.config;
  config.dtype = parse_dtype(arguments.dtype);
  config.layout = parse_layout(arguments.layout);
  config.progress = arguments.progress == "on" || (arguments.progress == "auto" && isatty(STDERR_FILENO));
  if (config.world == "env") return run_under_launcher(config);

  config.check();
  SpawnOptions options;
  options.topology = config.topology();
  if (config.world == "shm") {
    options.kind = WorldKind::shm;
    if (config.wants("mpi_alltoallv")) {
      const std::string why = become_mpirun(config);
      fmt::print(stderr, "shunt: without mpi_alltoallv: {}\n", why);
    }
  }
  World::spawn(
      config.ranks, [&](World& world) { run_rank(world, config, config.world); }, options);
}

}  // namespace

void add_bench_shuffle(CLI::App& bench) {
  auto arguments = std::make_shared<Arguments>();
  ShuffleConfig& config = arguments->config;
  CLI::App* verb = bench.add_subcommand("shuffle", "Dispatch and combine beside MPI_Alltoallv and unfused steps");
  verb->footer(kFooter);
  verb->option_defaults()->always_capture_default()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  verb->add_option("--ranks", config.ranks, "Expert-parallel ranks; with --world env the launcher says how many");
  verb->add_option("--nodes", config.nodes, "Virtual nodes that the ranks are spread over");
  verb->add_option("--tokens", config.tokens, "Tokens per rank");
  verb->add_option("--hidden", config.hidden, "Elements per row");
  verb->add_option("--experts", config.experts, "Experts, spread evenly over the ranks");
  verb->add_option("--topk", config.topk, "Experts per token");
  verb->add_option("--dtype", arguments->dtype, "Of rows: f32, bf16, f16 or fp8_e4m3");
  verb->add_option("--layout", arguments->layout, "expert_major, token_unique or padded");
  verb->add_option("--routing", config.routing, "See below");
  verb->add_option("--world", config.world, "shm (processes), inproc (threads), or env (ranks started by a launcher)")
      ->check(CLI::IsMember({"shm", "inproc", "env"}));
  verb->add_option("--systems", config.systems, "Which to measure; shunt always")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  verb->add_option("--iterations", config.iterations, "Timed repetitions");
  verb->add_option("--warmup", config.warmup, "Repetitions before them");
  verb->add_option("--seed", config.seed, "Of routings and rows");
  verb->add_option("--json", config.json, "Write the results to this file");
  verb->add_option("--progress", arguments->progress, "on, off or auto (on a terminal)")
      ->check(CLI::IsMember({"on", "off", "auto"}));
  verb->callback([arguments] { run(*arguments); });
}

}  // namespace shunt::cli
