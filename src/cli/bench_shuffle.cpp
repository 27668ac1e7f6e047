// shunt bench shuffle: measures dispatch and combine beside conventional implementations.
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "bench/machine_limits.hpp"
#include "bench/shuffle/config.hpp"
#include "bench/shuffle/measure.hpp"
#include "bench/shuffle/routing_model.hpp"
#include "cli/bench_report.hpp"
#include "cli/launch.hpp"
#include "cli/output.hpp"
#include "cli/verbs.hpp"
#include "core/diagnostic.hpp"
#include "core/fail.hpp"
#include "core/file.hpp"
#include "shunt/world.hpp"

namespace shunt::cli {
namespace {

using bench::ShuffleConfig, bench::ShuffleResult;

constexpr const char* kFooter = R"(
Systems, all measured in one run, in turn within each iteration, after their outputs were verified:
  shunt          every row is read once and written once, into its final slot
  mpi_alltoallv  permute, MPI_Alltoallv, permute; the better of cached and streaming permutes
  unfused        the same three steps over shunt's own transport; with --device cuda, permute, device copies, permute
  wire           several machines: plain TCP that moves the same bytes as shunt between them, and nothing else
  rotation       several machines, if listed in --systems: shunt with FUSCO's choice of forwarders

Routings:
  uniform        every expert equally likely
  zipf:A         expert i drawn in proportion to 1/(i+1)^A, A from 0 to 10
  node-local     all experts of a token have a copy on one node, drawn uniformly
  bimodal        half of the ranks hold experts that draw three times the tokens of the others
  hot-ranks:F    uniform, but the first rank of each node has F times as many tokens as the node's other ranks; the
                 remaining tokens of the other ranks are dropped; F from 1 to 1000
  clustered:G    experts in G groups, a token's experts mostly from one
  trace:FILE     recorded: layer --layer of a routing trace (docs/concepts/routing-traces.md), with its weights. Each rank
                 takes its own tokens if the recorded sources are these ranks, otherwise a run of tokens. FILE may also
                 be a text file with one token per line: its experts, separated by spaces; -1 for a choice that was dropped;
                 # comments. The first --topk choices of a token are used; after the last token ranks start over

Ranks share the cores of this machine. More than {} ranks per core are refused, because ranks that wait long for a core
look like lost ranks. Runs that need more memory than is available are refused too.

Examples:
  shunt bench shuffle --ranks 4
  shunt bench shuffle --tokens 128 --hidden 7168 --experts 256      decode-sized batches
  shunt bench shuffle --world inproc --layout token_unique --dtype fp8_e4m3
  shunt bench shuffle --ranks 8 --nodes 2 --layout token_unique --map map.json --layer 3
  shunt bench shuffle --ranks 4 --routing trace:moe.trace --layer 4
  shunt bench shuffle --ranks 4 --routing trace:moe.trace --layer 4 --map map.json --layout token_unique --prune 2
  shunt bench shuffle --device cuda --ranks 8 --hidden 7168 --experts 256
  shunt bench shuffle --device cuda --ranks 8 --hidden 7168 --experts 256 --sms 20      beside a GEMM
  shunt bench shuffle --device cuda --ranks 8 --hidden 7168 --experts 256 --low-latency
  mpirun -n 4 shunt bench shuffle --world env --json result.json
  tools/netcluster --hosts 4 --ranks-per-host 2 -- shunt bench shuffle --world env --tokens 1024
)";

struct Arguments {
  ShuffleConfig config;
  const CLI::Option* ranks = nullptr;
  const CLI::Option* tokens = nullptr;
  const CLI::Option* layout_option = nullptr;
  const CLI::Option* graph = nullptr;
  const CLI::Option* systems = nullptr;
  const CLI::Option* world = nullptr;
  std::string dtype = "bf16";
  std::string layout = "expert_major";
  std::string progress = "auto";
};

/// Throws Error if the request is invalid, before anything is started.
void check(const ShuffleConfig& config) {
  config.check();
  bench::check_memory(config);
  (void)bench::make_routing_model(config);
  if (!config.json.empty()) check_writable(config.json);
}

void run_rank(World& world, const ShuffleConfig& config, const std::string& world_name) {
  const ShuffleResult result =
      config.device == "cpu" ? bench::measure(world, config) : bench::measure_on_device(world, config);
  if (world.rank().value != 0) return;
  print_report(config, result, world_name);
  if (!config.json.empty()) write_json(config, result, world_name);
  flush_stdout();  // a forked process has no later chance to report a failed write
}

/// True for ranks of several machines that mpirun did not start. shunt and MPI are measured in the same processes, so
/// rank 0 starts new ranks by mpirun, and the other ranks return.
bool should_restart_under_mpirun(const ShuffleConfig& config) {
  return !std::getenv("OMPI_COMM_WORLD_SIZE") && mpirun_has_other_machines() && config.wants("mpi_alltoallv") &&
         why_no_mpirun().empty();
}

void run_under_launcher(const Arguments& arguments) {
  ShuffleConfig config = arguments.config;
  const Environment::Launch launch = launch_of(arguments.ranks->count() > 0 ? config.ranks : 0);
  config.ranks = launch.size;
  config.local_ranks = launch.local_size;
  if (should_restart_under_mpirun(config)) {
    if (launch.rank == 0) throw CLI::RuntimeError(run_under_mpirun(config));
    return;
  }
  if (std::getenv("OMPI_COMM_WORLD_SIZE")) die_with_launcher();
  check(config);  // before ranks join: afterwards another rank may have taken memory that this one counts as available
  World world = join_launched(config);
  const bool has_several_machines = launch.local_size != world.size();
  run_rank(world, config, has_several_machines ? "hosts" : "shm");
}

/// Defaults of --low-latency for options that are not given.
void choose_low_latency(Arguments& arguments) {
  if (arguments.tokens->count() == 0) arguments.config.tokens = 128;
  if (arguments.graph->count() == 0) arguments.config.graph = 20;
  if (arguments.layout_option->count() == 0) arguments.layout = "padded";
}

/// Defaults and checks of --device cuda.
void choose_device(Arguments& arguments) {
  if (arguments.world->count() > 0 && arguments.config.world != "inproc")
    fail(ErrorCode::invalid_argument, "--world {}: expected inproc with --device cuda, whose ranks are threads",
         arguments.config.world);
  arguments.config.world = "inproc";
  if (arguments.systems->count() == 0) arguments.config.systems = {"shunt", "unfused"};
}

void run(Arguments& arguments) {
  ShuffleConfig& config = arguments.config;
  if (config.low_latency) choose_low_latency(arguments);
  config.dtype = parse_dtype(arguments.dtype);
  config.layout = parse_layout(arguments.layout);
  config.load_map();
  config.progress = arguments.progress == "on" || (arguments.progress == "auto" && isatty(STDERR_FILENO));
  if (config.world == "env" && config.device == "cpu") return run_under_launcher(arguments);

  if (config.device != "cpu") choose_device(arguments);
  check(config);
  if (config.device != "cpu") bench::prepare_device();
  SpawnOptions options;
  options.topology = config.topology();
  if (config.world == "shm") {
    options.kind = WorldKind::shm;
    if (config.wants("mpi_alltoallv")) {
      const std::string why = why_no_mpirun();
      if (why.empty()) throw CLI::RuntimeError(run_under_mpirun(config));
      print_diagnostic("shunt: without mpi_alltoallv: {}\n", why);
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
  verb->footer(fmt::format(kFooter, bench::kMostRanksPerCore));
  verb->option_defaults()->always_capture_default()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  arguments->ranks =
      verb->add_option("--ranks", config.ranks, "Expert-parallel ranks; with --world env the launcher sets the number");
  verb->add_option("--nodes", config.nodes, "Virtual nodes that the ranks are spread over");
  arguments->tokens = verb->add_option("--tokens", config.tokens, "Tokens per rank");
  verb->add_option("--hidden", config.hidden, "Elements per row");
  verb->add_option("--experts", config.experts, "Experts, spread evenly over the ranks unless there is a --map");
  verb->add_option("--topk", config.topk, "Experts per token");
  verb->add_option("--dtype", arguments->dtype, "Row dtype: f32, bf16, f16 or fp8_e4m3");
  arguments->layout_option = verb->add_option("--layout", arguments->layout, "expert_major, token_unique or padded");
  add_routing_options(*verb, config);
  arguments->world = verb->add_option("--world", config.world,
                                      "shm (processes), inproc (threads), or env (ranks started by a launcher)")
                         ->check(CLI::IsMember({"shm", "inproc", "env"}));
  verb->add_option("--device", config.device, "cpu, or cuda: ranks are threads that share the current GPU")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  arguments->graph = verb->add_option(
      "--graph", config.graph,
      "With --device cuda: time this many operations in a row, shunt's in a CUDA graph, and report the time of one");
  verb->add_option("--sms", config.sms,
                   "With --device cuda: multiprocessors for all ranks together; a GEMM on the others is timed too");
  verb->add_flag("--low-latency", config.low_latency,
                 "With --device cuda: also time dispatch and combine separately in a graph of pairs; defaults to "
                 "--layout padded --tokens 128 --graph 20");
  arguments->systems =
      verb->add_option("--systems", config.systems,
                       "Any of shunt (always measured), mpi_alltoallv, unfused, wire and rotation; with "
                       "--device cuda shunt and unfused")
          ->delimiter(',')
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  verb->add_option("--iterations", config.iterations, "Timed repetitions");
  verb->add_option("--warmup", config.warmup, "Untimed repetitions before them");
  verb->add_option("--seed", config.seed, "Seed of routings and rows");
  verb->add_option("--json", config.json, "Write the results to this file");
  verb->add_option("--progress", arguments->progress, "on, off or auto (on a terminal)")
      ->check(CLI::IsMember({"on", "off", "auto"}));
  verb->callback([arguments] { run(*arguments); });
}

}  // namespace shunt::cli
