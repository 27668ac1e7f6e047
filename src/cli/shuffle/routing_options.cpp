#include "cli/shuffle/routing_options.hpp"

namespace shunt::cli {

void add_routing_options(CLI::App& verb, ShuffleConfig& config) {
  verb.add_option("--routing", config.routing, "Which experts tokens choose; see `shunt bench shuffle --help`");
  verb.add_option("--first-token", config.first_token, "Of a trace: where the first rank's tokens begin");
  verb.add_option("--map", config.map_file,
                  "Experts lie as in this file of expert maps, as `shunt place` writes it, not in order");
  verb.add_option("--layer", config.layer, "Whose map of --map, and whose tokens of a trace of several layers");
  verb.add_option("--prune", config.prune.limit,
                  "Most ranks per token: experts elsewhere give way before the plan (docs/concepts/pruning.md)");
  verb.add_option("--prune-by", config.prune.by,
                  "What makes an expert give way to another: score, or similarity, which needs a trace with scores. By "
                  "score, a trace with scores of all tokens lets any expert replace another; else experts are dropped")
      ->check(CLI::IsMember({"score", "similarity"}));
  verb.add_option("--prune-level", config.prune.level, "What --prune counts: ranks or nodes")
      ->check(CLI::IsMember({"ranks", "nodes"}));
}

}  // namespace shunt::cli
