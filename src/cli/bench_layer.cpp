// shunt bench layer: measures a whole Mixture-of-Experts layer and the share of the shuffle in it.
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "bench/layer/config.hpp"
#include "bench/layer/measure.hpp"
#include "bench/machine_limits.hpp"
#include "bench/shuffle/routing_model.hpp"
#include "cli/bench_report.hpp"
#include "cli/launch.hpp"
#include "cli/output.hpp"
#include "cli/verbs.hpp"
#include "core/fail.hpp"
#include "core/file.hpp"
#include "layer/gemm.hpp"
#include "shunt/world.hpp"

namespace shunt::cli {
namespace {

using bench::LayerConfig, bench::LayerResult, bench::ShuffleConfig;

constexpr const char* kFooter = R"(
A layer is plan, dispatch, experts, combine. Every expert is a SwiGLU, down(silu(gate(x)) * up(x)), with random weights
of its own.

On the CPU, these systems are measured in one run, in turn within each iteration, after tokens of each were verified:
  conventional   permute, all-to-all of one row per (token, expert) over shunt's transport, permute; weighted sum at the end
  expert_major   shunt's shuffle of one row per (token, expert); combine computes the weighted sum
  token_unique   shunt's shuffle of one row per (token, rank); the experts gather rows block by block and add their weighted
                 outputs, so that the copies per expert of a large batch are never stored all at once
These options measure the last system again, each with one change more:
  map            (--map) experts are placed as in this file; otherwise in order
  replicas       (--replica-map) experts are placed as in this file, where some have copies on several ranks
  pruned         (--prune D) with the last of these maps, no token uses more than D ranks, or nodes (--prune-level).
                 Routings are pruned beforehand; pruning is not timed
Each row compared with the row before shows the effect of fusion (expert_major), one copy per rank (token_unique),
placement, replicas and pruning. C_T is the mean number of ranks that a token is sent to; load is the busiest rank's
(token, expert) pairs over the mean.

Each rank computes on one thread, with oneDNN or OpenBLAS. The time of a part is what it adds to the time of the slowest
rank, so that the parts add up to the layer. Speedups are the median, least and most of the ratios of single iterations.

With --device cuda, one layout is measured, with one --map; with --prune, every layer prunes its tokens first. cuBLASLt
multiplies tiles of 128 rows of one expert each. Sizes stay on the device and the bounds are those of the measured
routing, so the same work can be captured in a CUDA graph (--graph).
  expert_major   every expert's rows are padded to whole tiles; combine computes the weighted sum
  token_unique   the experts copy the rows of a run of tokens into a buffer, one copy per expert, compute there and add
                 the weighted outputs. More --chunks take less memory and more time, because every run pads its own
                 tiles and reads all weights

Printed beside the times:
  FLOP/s         of the products of routed rows, without padding
  dense          the same products as if all rows had one expert, in the same run
  largest error  of the --verify tokens per rank that plain loops compute too, relative to their norm

Examples:
  shunt bench layer --ranks 2 --tokens 4096
  shunt bench layer --world inproc --dtype f32 --systems expert_major,token_unique --json layer.json
  shunt bench layer --ranks 4 --routing trace:moe.trace --layer 4 --map map.json --replica-map replicas.json --prune 2
  tools/netcluster --hosts 4 --ranks-per-host 1 --rate 1gbit -- shunt bench layer --world env
  shunt bench layer --device cuda --ranks 8 --hidden 7168 --ffn 2048 --experts 256 --graph 3
  shunt bench layer --device cuda --ranks 8 --hidden 7168 --ffn 2048 --experts 256 --layout token_unique --chunks 2
  shunt bench layer --device cuda --ranks 4 --hidden 4096 --ffn 1536 --experts 128 --routing zipf:0.5 --json layer.json
)";

struct Arguments {
  LayerConfig config;
  const CLI::Option* ranks = nullptr;
  const CLI::Option* tokens = nullptr;
  const CLI::Option* iterations = nullptr;
  const CLI::Option* layout_option = nullptr;
  const CLI::Option* systems = nullptr;
  const CLI::Option* world = nullptr;
  const CLI::Option* nodes = nullptr;
  std::string dtype = "bf16";
  std::string layout = "expert_major";
  std::string progress = "auto";
};

/// Throws Error if the request is invalid, before anything is started.
void check(const LayerConfig& config) {
  config.check();
  if (config.is_on_device())
    bench::check_memory(config.shuffle);
  else
    bench::check_memory(config.shuffle, config.host_memory_bytes(),
                        "--tokens, --hidden, --ffn, --topk, --experts or --ranks, or name fewer --systems");
  (void)bench::make_routing_model(config.shuffle);
  if (!config.shuffle.json.empty()) check_writable(config.shuffle.json);
}

void run_on_device(Arguments& arguments) {
  LayerConfig& config = arguments.config;
  ShuffleConfig& shuffle = config.shuffle;
  const auto refuse = [](const CLI::Option* option, const char* why) {
    if (option->count() > 0)
      fail(ErrorCode::invalid_argument, "{}: not with --device cuda, {}", option->get_name(), why);
  };
  refuse(arguments.systems, "which measures one --layout");
  refuse(arguments.nodes, "whose ranks are one node");
  if (!config.replica_map_file.empty())
    fail(ErrorCode::invalid_argument,
         "--replica-map: not with --device cuda, which takes one --map, with copies or without");
  if (arguments.world->count() > 0 && shuffle.world != "inproc")
    fail(ErrorCode::invalid_argument, "--world {}: expected inproc with --device cuda, whose ranks are threads",
         shuffle.world);
  shuffle.world = "inproc";
  check(config);
  bench::prepare_layer(config);
  World::spawn(shuffle.ranks, [&](World& world) {
    const LayerResult result = bench::measure_layer(world, config);
    if (world.rank().value != 0) return;
    print_layer_report(config, result);
    if (!shuffle.json.empty()) write_layer_json(config, {result}, shuffle.world);
  });
}

void run_rank(World& world, const LayerConfig& config, const std::string& world_name) {
  const std::vector<LayerResult> results = bench::measure_layer_on_host(world, config);
  if (world.rank().value != 0) return;
  print_layer_comparison(config, results, world_name, Gemm::library());
  if (!config.shuffle.json.empty()) write_layer_json(config, results, world_name);
  flush_stdout();  // a forked process has no later chance to report a failed write
}

void run_under_launcher(Arguments& arguments) {
  LayerConfig& config = arguments.config;
  ShuffleConfig& shuffle = config.shuffle;
  const Environment::Launch launch = launch_of(arguments.ranks->count() > 0 ? shuffle.ranks : 0);
  shuffle.ranks = launch.size;
  shuffle.local_ranks = launch.local_size;
  if (std::getenv("OMPI_COMM_WORLD_SIZE")) die_with_launcher();
  check(config);  // before ranks join: afterwards another rank may have taken memory that this one counts as available
  World world = join_launched(shuffle);
  run_rank(world, config, launch.local_size != world.size() ? "hosts" : "shm");
}

void run_on_host(Arguments& arguments) {
  LayerConfig& config = arguments.config;
  ShuffleConfig& shuffle = config.shuffle;
  constexpr std::int64_t kTokens = 1024;  // a layer on a core takes seconds, not milliseconds
  constexpr int kIterations = 5;
  if (arguments.tokens->count() == 0) shuffle.tokens = kTokens;
  if (arguments.iterations->count() == 0) shuffle.iterations = kIterations;
  if (arguments.layout_option->count() > 0) {
    if (arguments.systems->count() > 0)
      fail(ErrorCode::invalid_argument, "--layout: not beside --systems, which name layouts too");
    config.systems = {arguments.layout};
  } else if (!config.systems.empty()) {  // the last system's, as its figures are at the top level of the report
    shuffle.layout = config.systems.back() == "token_unique" ? Layout::token_unique : Layout::expert_major;
  }
  if (Gemm::library().empty())
    fail(ErrorCode::unsupported, "bench layer: this build has neither oneDNN (SHUNT_ONEDNN) nor OpenBLAS");
  if (shuffle.world == "env") return run_under_launcher(arguments);
  check(config);
  SpawnOptions options;
  options.topology = shuffle.topology();
  if (shuffle.world == "shm") options.kind = WorldKind::shm;
  World::spawn(
      shuffle.ranks, [&](World& world) { run_rank(world, config, shuffle.world); }, options);
}

void run(Arguments& arguments) {
  ShuffleConfig& shuffle = arguments.config.shuffle;
  shuffle.dtype = parse_dtype(arguments.dtype);
  shuffle.layout = parse_layout(arguments.layout);
  shuffle.systems = {"shunt"};
  arguments.config.load_maps();
  shuffle.progress = arguments.progress == "on" || (arguments.progress == "auto" && isatty(STDERR_FILENO));
  return arguments.config.is_on_device() ? run_on_device(arguments) : run_on_host(arguments);
}

}  // namespace

void add_bench_layer(CLI::App& bench) {
  auto arguments = std::make_shared<Arguments>();
  LayerConfig& config = arguments->config;
  ShuffleConfig& shuffle = config.shuffle;
  CLI::App* verb = bench.add_subcommand("layer", "A whole layer: plan, dispatch, experts, combine");
  verb->footer(kFooter);
  verb->option_defaults()->always_capture_default()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  verb->add_option("--device", shuffle.device, "cpu, or cuda: ranks are threads that share the current GPU")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  arguments->ranks = verb->add_option("--ranks", shuffle.ranks,
                                      "Expert-parallel ranks; with --world env the launcher sets the number");
  arguments->nodes = verb->add_option("--nodes", shuffle.nodes, "Virtual nodes that the ranks are spread over");
  arguments->world = verb->add_option("--world", shuffle.world,
                                      "shm (processes), inproc (threads), or env (ranks started by a launcher)")
                         ->check(CLI::IsMember({"shm", "inproc", "env"}));
  arguments->tokens = verb->add_option("--tokens", shuffle.tokens, "Tokens per rank; on the CPU by default 1024");
  verb->add_option("--hidden", shuffle.hidden, "Elements per row; on a device a multiple of 8");
  verb->add_option("--ffn", config.ffn, "Elements between an expert's products; on a device a multiple of 8");
  verb->add_option("--experts", shuffle.experts, "Experts, spread evenly over the ranks unless there is a --map");
  verb->add_option("--topk", shuffle.topk, "Experts per token");
  verb->add_option("--dtype", arguments->dtype, "Dtype of rows and weights: f32 or bf16; on a device also f16");
  arguments->systems =
      verb->add_option("--systems", config.systems,
                       "On the CPU: any of conventional, expert_major and token_unique; speedups are over the first")
          ->delimiter(',')
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  arguments->layout_option =
      verb->add_option("--layout", arguments->layout, "expert_major or token_unique; on the CPU only that system");
  verb->add_option(
      "--chunks", config.chunks,
      "On a device, with token_unique: number of runs of tokens that use one buffer in turn; 0: chosen by size");
  add_routing_options(*verb, shuffle);
  verb->add_option("--replica-map", config.replica_map_file,
                   "On the CPU: another file of expert maps, with copies of experts");
  verb->add_option("--graph", shuffle.graph, "On a device: also time this many layers in one CUDA graph");
  verb->add_option("--verify", config.verified, "Tokens per rank that are compared with the result of plain loops");
  arguments->iterations =
      verb->add_option("--iterations", shuffle.iterations, "Timed repetitions; on the CPU by default 5");
  verb->add_option("--warmup", shuffle.warmup, "Untimed repetitions before them");
  verb->add_option("--seed", shuffle.seed, "Seed of routings, rows and weights");
  verb->add_option("--json", shuffle.json, "Write the results to this file");
  verb->add_option("--progress", arguments->progress, "on, off or auto (on a terminal)")
      ->check(CLI::IsMember({"on", "off", "auto"}));
  verb->callback([arguments] { run(*arguments); });
}

}  // namespace shunt::cli
