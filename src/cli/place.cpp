// shunt place: computes which rank holds which expert from recorded routing.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "cli/output.hpp"
#include "cli/place/request.hpp"
#include "cli/verbs.hpp"
#include "core/diagnostic.hpp"
#include "core/fail.hpp"
#include "core/file.hpp"
#include "shunt/routing_trace.hpp"

namespace shunt::cli {
namespace {

constexpr const char* kFooter = R"(
Four forms:
  shunt place --trace F --nodes N --ranks-per-node M -o map.json    make maps for all layers and estimate their cost
  shunt place --trace F --stats [--map map.json]                    print statistics of the layers and of a map
  shunt place --trace F --from map.json --window N -o new.json      follow drift: move experts if it pays off
  shunt place --generate KIND -o F                                  generate a synthetic trace

Methods:
  shunt            swaps scored on tokens, under a limit on the busiest rank's load; copies if --replicas allows them
  contiguous       experts in order
  occult-greedy    the greedy algorithm of the Occult paper; ignores load
  occult-repaired  the same, then the cheapest swaps until the load limit holds
  load-only        balances load only, hierarchical, with copies, like EPLB
  all              all of these; -o writes shunt's map

Kinds of synthetic traces:
  uniform          every expert equally likely
  zipf             expert i in proportion to 1/i^--exponent, in a shuffled order
  clustered        --groups disjoint groups; all experts of a token are from one group
  topics           overlapping topics of different popularity
  drift            topics that change half-way through

Traces are recorded with EngineOptions::trace or converted from NumPy arrays with tools/trace_from_npz. Several --trace
files of one model, such as one per rank, are read as one trace.

Examples:
  shunt place --generate topics --layers 4 -o topics.trace
  shunt place --trace topics.trace --nodes 2 --ranks-per-node 4 --method all --holdout 0.5 -o map.json --json report.json
  shunt place --trace topics.trace --ranks-per-node 8 --objective c_t --replicas 12.5 --load-limit 1.1 -o map.json
  shunt report report.json -o report.html
  shunt bench shuffle --ranks 8 --nodes 2 --routing trace:topics.trace --map map.json --layer 2
)";

struct Arguments {
  PlaceRequest request;
  bool stats = false;
  std::string map, from, progress = "auto";
};

/// Refuses options that the requested form would ignore.
void refuse_options_of_other_forms(const CLI::App& verb, const Arguments& arguments) {
  struct Form {
    const char* name;
    bool is_asked;
    std::vector<const char*> refused;
  };
  const std::vector<const char*> of_generate = {"--layers", "--tokens",   "--experts", "--topk",
                                                "--groups", "--exponent", "--seed"};
  const bool is_generated = !arguments.request.generate.empty();
  for (const Form& form :
       {Form{"--stats",
             arguments.stats,
             {"--objective", "--replicas", "--load-limit", "--prune", "--holdout", "--method", "-o"}},
        Form{"--from",
             !arguments.from.empty(),
             {"--nodes", "--ranks-per-node", "--replicas", "--prune", "--holdout", "--method"}},
        Form{"--generate",
             is_generated,
             {"--nodes", "--ranks-per-node", "--replicas", "--load-limit", "--prune", "--holdout", "--method",
              "--objective", "--first-token", "--json"}},
        Form{"--trace", !is_generated, of_generate}})
    for (const char* option : form.refused)
      if (form.is_asked && verb.get_option(option)->count() > 0)
        fail(ErrorCode::invalid_argument, "{}: not with {}", option, form.name);
}

/// Refuses outputs that would overwrite an input. The map of --from may be overwritten by -o.
void refuse_to_overwrite_inputs(const Arguments& arguments) {
  const PlaceRequest& request = arguments.request;
  const auto refuse_same = [](const std::string& needed, const std::string& written) {
    if (needed.empty() || written.empty()) return;
    std::error_code error;  // of a file that does not exist yet
    const auto plain = [](const std::string& path) { return std::filesystem::absolute(path).lexically_normal(); };
    if (std::filesystem::equivalent(needed, written, error) || plain(needed) == plain(written))
      fail(ErrorCode::invalid_argument, "{}: it would replace {}", written, needed);
  };
  for (const std::string& trace : request.traces)
    for (const std::string& written : {request.output, request.json}) refuse_same(trace, written);
  for (const std::string& needed : {arguments.map, arguments.from, request.output}) refuse_same(needed, request.json);
}

void demand(bool holds, const char* option, const char* expected) {
  if (!holds) fail(ErrorCode::invalid_argument, "{}: expected {}", option, expected);
}

void run(const CLI::App& verb, Arguments& arguments) {
  PlaceRequest& request = arguments.request;
  request.progress = arguments.progress == "on" || (arguments.progress == "auto" && isatty(STDERR_FILENO));
  const int forms = arguments.stats + !arguments.from.empty() + !request.generate.empty();
  demand(forms <= 1, "--stats, --from, --generate", "one of them at most");
  demand(request.generate.empty() || request.traces.empty(), "--generate", "no --trace with it");
  demand(!request.generate.empty() || !request.traces.empty(), "--trace", "a file, or --generate to make one");
  demand(arguments.map.empty() || arguments.stats, "--map", "--stats with it; --from follows a map");
  demand((request.window > 0) == !arguments.from.empty(), "--window", "--from with it, and at least 1");
  demand(request.first_token >= 0, "--first-token", "at least 0");
  refuse_options_of_other_forms(verb, arguments);
  for (const std::string& file : {request.output, request.json})
    if (!file.empty()) check_writable(file);
  refuse_to_overwrite_inputs(arguments);
  if (!request.generate.empty()) {
    demand(!request.output.empty(), "--generate", "-o FILE with it");
    return generate_trace(request);
  }
  request.map_file = arguments.stats ? arguments.map : arguments.from;
  if (arguments.stats) return show_stats(request);
  if (!arguments.from.empty()) return follow_drift(request);
  demand(!request.output.empty() || !request.json.empty(), "-o", "a file for the maps, or --json for the report");
  make_maps(request);
}

}  // namespace

Cluster PlaceRequest::load_cluster() const { return Cluster::load(cluster); }

placement::PlaceOptions PlaceRequest::options() const {
  demand(nodes >= 1, "--nodes", "at least 1");
  demand(ranks_per_node >= 1 && ranks_per_node <= 1024 && std::int64_t{nodes} * ranks_per_node <= 4096,
         "--ranks-per-node", "1 to 1024, and at most 4096 ranks in all");
  demand(effort.starts >= 1, "--search-starts", "at least 1");
  demand(effort.steps >= 0, "--search-steps", "at least 0");
  demand(effort.sample >= 1, "--search-tokens", "at least 1");
  demand(effort.replica_proposals >= 0, "--search-copies", "at least 0");
  demand(replicas >= 0 && replicas <= 1000, "--replicas", "0 to 1000 per cent");
  demand(!load_limit || (*load_limit >= 1 && *load_limit <= 1e6), "--load-limit",
         "at least 1: the busiest rank over the mean");
  demand(prune >= 0, "--prune", "at least 1");
  demand(holdout >= 0 && holdout < 1, "--holdout", "0 to less than 1");
  demand(hidden >= 1, "--hidden", "at least 1");
  demand(tokens_per_rank >= 1, "--tokens-per-rank", "at least 1");
  demand(expert_mb > 0, "--expert-mb", "more than 0");
  demand(horizon > 0, "--horizon", "more than 0");
  placement::PlaceOptions options;
  options.nodes = nodes;
  options.ranks_per_node = ranks_per_node;
  options.goal = objective == "c_t" ? placement::Goal::c_t : placement::Goal::time;
  options.cost = placement::ShuffleCost::of(
      load_cluster(), static_cast<std::size_t>(hidden) * size_of(parse_dtype(dtype)), tokens_per_rank);
  options.replicas = replicas;
  options.load_limit = load_limit;
  options.effort = effort;
  return options;
}

void generate_trace(const PlaceRequest& request) {
  const placement::GenerateOptions& generated = request.generated;
  demand(request.generated_layers >= 1, "--layers", "at least 1");
  (void)placement::make_generator(request.generate, generated, 0);  // throws before a file is created
  TraceWriter writer(request.output, {.layers = request.generated_layers,
                                      .experts = generated.experts,
                                      .topk = generated.topk,
                                      .weights = false,
                                      .scores = false,
                                      .sources = false});
  constexpr std::int64_t kTokensAtOnce = 16'384;
  const auto topk = static_cast<std::size_t>(generated.topk);
  std::vector<std::int32_t> experts;
  for (std::int32_t layer = 0; layer < request.generated_layers; ++layer) {
    const auto generator = placement::make_generator(request.generate, generated, layer);
    for (std::int64_t begin = 0; begin < generated.tokens; begin += kTokensAtOnce) {
      experts.resize(static_cast<std::size_t>(std::min(kTokensAtOnce, generated.tokens - begin)) * topk);
      for (std::size_t i = 0; i < experts.size(); i += topk) generator->draw(std::span(experts).subspan(i, topk));
      writer.append(layer, {.experts = experts, .weights = {}, .topk = generated.topk});
    }
    if (request.progress) print_diagnostic("\r\x1b[K{} of {} layers", layer + 1, request.generated_layers);
  }
  if (request.progress) print_diagnostic("\r\x1b[K");
  writer.finish();
  fmt::print("{}: {} of {}, {} experts, top-{}\n", request.output, plural(request.generated_layers, "layer"),
             plural(generated.tokens, "token"), generated.experts, generated.topk);
}

void add_place(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  PlaceRequest& request = arguments->request;
  CLI::App* verb = app.add_subcommand(
      "place", "Make expert maps from recorded routing: experts that are used together are placed together");
  verb->footer(kFooter);
  verb->option_defaults()->always_capture_default()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  verb->add_option("--trace", request.traces, "Routing trace; several traces of one model are read as one")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  verb->add_option("--nodes", request.nodes, "Number of nodes; a token is sent once to each node that it uses");
  verb->add_option("--ranks-per-node", request.ranks_per_node, "Ranks per node");
  verb->add_option("--cluster", request.cluster,
                   "Cluster whose links the estimates use: a preset (v100, a100, h100) or a file");
  verb->add_option("--objective", request.objective, "time: time of the busiest link; c_t: distinct ranks per token")
      ->check(CLI::IsMember({"time", "c_t"}));
  verb->add_option("--replicas", request.replicas, "Additional copies of experts, in per cent of the experts");
  verb->add_option("--load-limit", request.load_limit,
                   "Most rows of a rank over the mean, in every layer; default: 1.05 times the result of load-only");
  verb->add_option("--prune", request.prune,
                   "Also report the probability mass that remains if tokens are pruned to this many ranks");
  verb->add_option("--holdout", request.holdout,
                   "Share of each layer's tokens, the last ones, that are not used to make maps");
  verb->add_option("--method", request.method, "See below");
  verb->add_option("--first-token", request.first_token, "Skip the tokens before this one in every layer");
  verb->add_option("--hidden", request.hidden, "Elements per row, for estimates");
  verb->add_option("--dtype", request.dtype, "Row dtype, for estimates");
  verb->add_option("--tokens-per-rank", request.tokens_per_rank, "Tokens per rank of one shuffle, for estimates");
  verb->add_flag("--stats", arguments->stats, "Print statistics of the trace's layers");
  verb->add_option("--map", arguments->map, "With --stats: score this map instead of experts in order");
  verb->add_option("--from", arguments->from, "Follow drift of the trace, starting with this map");
  verb->add_option("--window", request.window, "With --from: tokens per window");
  verb->add_option("--expert-mb", request.expert_mb,
                   "With --from: size of an expert's weights and of the optimizer states that move with them");
  verb->add_option("--horizon", request.horizon,
                   "With --from: number of shuffles that a map is expected to be used for");
  verb->add_option("--generate", request.generate, "Generate a synthetic trace of this kind");
  verb->add_option("--layers", request.generated_layers, "With --generate");
  verb->add_option("--tokens", request.generated.tokens, "With --generate: tokens per layer");
  verb->add_option("--experts", request.generated.experts, "With --generate");
  verb->add_option("--topk", request.generated.topk, "With --generate");
  verb->add_option("--groups", request.generated.groups, "With --generate clustered");
  verb->add_option("--exponent", request.generated.exponent, "With --generate zipf");
  verb->add_option("--seed", request.generated.seed, "With --generate");
  verb->add_option("--search-steps", request.effort.steps, "Effort: swaps per start");
  verb->add_option("--search-starts", request.effort.starts, "Effort: number of starts");
  verb->add_option("--search-tokens", request.effort.sample, "Effort: tokens used to score swaps");
  verb->add_option("--search-copies", request.effort.replica_proposals, "Effort: changes of copies to try");
  verb->add_option("-o,--output", request.output, "File for the maps or the trace");
  verb->add_option("--json", request.json, "Write the figures to this file");
  verb->add_option("--progress", arguments->progress, "on, off or auto (on a terminal)")
      ->check(CLI::IsMember({"on", "off", "auto"}));
  verb->callback([arguments, verb] { run(*verb, *arguments); });
}

}  // namespace shunt::cli
