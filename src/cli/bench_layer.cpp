// shunt bench layer: how long a whole Mixture-of-Experts layer takes, and how much of it is shuffle.
#include <memory>

#include "cli/layer/config.hpp"
#include "cli/layer/measure.hpp"
#include "cli/layer/report.hpp"
#include "cli/shuffle/memory_estimate.hpp"
#include "cli/shuffle/routing_model.hpp"
#include "cli/verbs.hpp"
#include "core/file.hpp"
#include "shunt/world.hpp"

namespace shunt::cli {
namespace {

constexpr const char* kFooter = R"(
A layer is plan, dispatch, experts, combine. Every expert is a SwiGLU: down(silu(gate(x)) * up(x)), with weights of
its own, drawn at random; products are cuBLASLt's, on tiles of 128 rows of one expert each. Sizes stay on the device
and the bounds are those of the routing that is measured, so the same work can be captured in a CUDA graph (--graph).

Layouts:
  expert_major   a row per (token, expert), every expert's filled up to whole tiles; combine weighs and sums
  token_unique   a row per (token, rank); the experts copy the rows of a run of tokens into a buffer, one per expert,
                 compute, weigh and sum them there, so that the copy per expert is never stored as a whole. More
                 --chunks take less memory and more time, as every run fills up its own tiles and reads all weights

What is printed beside the times:
  TFLOP/s        of the products of routed rows, without what fills tiles up
  dense          the same products as if all rows had one expert, in the same run
  largest error  of the --verify tokens per rank that the host computes as well, relative to their norm

Examples:
  shunt bench layer --device cuda --ranks 8 --hidden 7168 --ffn 2048 --experts 256 --graph 3
  shunt bench layer --device cuda --ranks 8 --hidden 7168 --ffn 2048 --experts 256 --layout token_unique --chunks 2
  shunt bench layer --device cuda --ranks 4 --hidden 4096 --ffn 1536 --experts 128 --routing zipf:0.5 --json layer.json
)";

struct Arguments {
  LayerConfig config;
  std::string dtype = "bf16";
  std::string layout = "expert_major";
};

void run(Arguments& arguments) {
  LayerConfig& config = arguments.config;
  ShuffleConfig& shuffle = config.shuffle;
  shuffle.dtype = parse_dtype(arguments.dtype);
  shuffle.layout = parse_layout(arguments.layout);
  shuffle.world = "inproc";
  shuffle.systems = {"shunt"};
  shuffle.load_map();
  config.check();
  check_memory(shuffle);
  (void)make_routing_model(shuffle);
  if (!shuffle.json.empty()) check_writable(shuffle.json);
  prepare_layer(config);
  World::spawn(shuffle.ranks, [&](World& world) {
    const LayerResult result = measure_layer(world, config);
    if (world.rank().value != 0) return;
    print_layer_report(config, result);
    if (!shuffle.json.empty()) write_layer_json(config, result);
  });
}

}  // namespace

void add_bench_layer(CLI::App& bench) {
  auto arguments = std::make_shared<Arguments>();
  LayerConfig& config = arguments->config;
  ShuffleConfig& shuffle = config.shuffle;
  shuffle.device = "cuda";
  CLI::App* verb = bench.add_subcommand("layer", "A whole layer on a GPU: plan, dispatch, experts, combine");
  verb->footer(kFooter);
  verb->option_defaults()->always_capture_default()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  verb->add_option("--device", shuffle.device, "cuda: ranks are threads that share the current GPU")
      ->check(CLI::IsMember({"cuda"}));
  verb->add_option("--ranks", shuffle.ranks, "Expert-parallel ranks");
  verb->add_option("--tokens", shuffle.tokens, "Tokens per rank");
  verb->add_option("--hidden", shuffle.hidden, "Elements per row, a multiple of 8");
  verb->add_option("--ffn", config.ffn, "Elements between an expert's products, a multiple of 8");
  verb->add_option("--experts", shuffle.experts, "Experts, spread evenly over the ranks unless there is a --map");
  verb->add_option("--topk", shuffle.topk, "Experts per token");
  verb->add_option("--dtype", arguments->dtype, "Of rows and weights: f32, bf16 or f16");
  verb->add_option("--layout", arguments->layout, "expert_major or token_unique");
  verb->add_option("--chunks", config.chunks,
                   "With token_unique: runs of tokens that take turns in one buffer; 0: chosen by size");
  verb->add_option("--routing", shuffle.routing, "As in bench shuffle");
  verb->add_option("--map", shuffle.map_file, "As in bench shuffle");
  verb->add_option("--layer", shuffle.layer, "As in bench shuffle");
  verb->add_option("--graph", shuffle.graph, "Also time so many layers in one CUDA graph");
  verb->add_option("--verify", config.verified, "Tokens per rank that are compared with the host's result");
  verb->add_option("--iterations", shuffle.iterations, "Timed repetitions");
  verb->add_option("--warmup", shuffle.warmup, "Repetitions before them");
  verb->add_option("--seed", shuffle.seed, "Of routings, rows and weights");
  verb->add_option("--json", shuffle.json, "Write the results to this file");
  verb->callback([arguments] { run(*arguments); });
}

}  // namespace shunt::cli
