#include "graph/small_models.hpp"

#include <fmt/format.h>

#include <random>

#include "graph/model.hpp"
#include "support/dice.hpp"

namespace shunt::graph::test {

std::vector<SmallModel> small_models() {
  return {
      {"Tiny", load_description("model", model_presets(), "tiny").text},
      {"Capacity", R"({"name": "capacity", "layers": 1, "hidden": 6, "ffn_hidden": 8, "vocabulary": 7, "sequence": 4,
        "sequences_per_rank": 4, "dtype": "f32", "positions": "learned", "norm": "rms", "activation": "gelu",
        "tied_embeddings": true, "attention": {"kind": "plain", "heads": 2},
        "moe": {"experts": 4, "hidden": 5, "gate": {"scores": "softmax", "topk": 1, "capacity_factor": 1.0,
        "balance_loss": 0.02}}, "optimizer": {"kind": "sgd"}})"},
      {"Rope", R"({"name": "rope", "layers": 1, "hidden": 6, "ffn_hidden": 4, "vocabulary": 7, "sequence": 4,
        "sequences_per_rank": 2, "dtype": "f32", "positions": "rope", "norm": "rms", "activation": "swiglu",
        "attention": {"kind": "fused", "heads": 2, "head_dim": 4},
        "moe": {"experts": 4, "hidden": 5, "shared": 1, "gate": {"scores": "softmax", "topk": 2}},
        "optimizer": {"kind": "adam"}})"},
      {"Latent", R"({"name": "latent", "layers": 2, "hidden": 6, "ffn_hidden": 4, "vocabulary": 7, "sequence": 3,
        "sequences_per_rank": 4, "dtype": "f32", "positions": "rope", "norm": "rms", "activation": "swiglu",
        "attention": {"kind": "latent", "heads": 2, "head_dim": 4, "query_rank": 5, "kv_rank": 3, "rope_dim": 2},
        "moe": {"first": 1, "experts": 8, "hidden": 3, "shared": 1, "gate": {"scores": "sigmoid", "topk": 2, "groups": 4,
        "groups_kept": 2, "bias": true, "normalise": true, "scale": 2.5}}, "optimizer": {"kind": "adam"}})"},
  };
}

SmallModel random_model(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  shunt::test::Dice dice(random);
  const std::string attention = dice.pick<std::string>(
      {R"({"kind": "plain", "heads": 2})", R"({"kind": "fused", "heads": 1, "head_dim": 4})",
       R"({"kind": "latent", "heads": 2, "head_dim": 2, "query_rank": 3, "kv_rank": 3, "rope_dim": 2})"});
  const int groups = dice.pick({1, 2});
  const std::string gate = fmt::format(
      R"({{"scores": "{}", "topk": {}, "groups": {}, "bias": {}, "normalise": {}, "capacity_factor": {}, "balance_loss": {}}})",
      dice.pick({"softmax", "sigmoid"}), dice.between(1, 2), groups, dice.one_in(2), dice.one_in(2),
      dice.pick({0.0, 0.5, 1.0}), dice.pick({0.0, 0.01}));
  const int layers = dice.between(1, 4);
  const std::string json = fmt::format(
      R"({{"name": "random", "layers": {}, "hidden": {}, "ffn_hidden": 3, "vocabulary": 5, "sequence": {}, "sequences_per_rank": {},
          "dtype": "f32", "positions": "{}", "norm": "{}", "activation": "{}", "tied_embeddings": {}, "attention": {},
          "moe": {{"every": {}, "first": {}, "experts_per_rank": 2, "hidden": 3, "shared": {}, "gate": {}}},
          "optimizer": {{"kind": "{}"}}}})",
      layers, 4 * dice.between(1, 2), dice.between(1, 3), dice.between(2, 9), dice.pick({"learned", "rope"}),
      dice.pick({"layer", "rms"}), dice.pick({"gelu", "swiglu"}), dice.one_in(2), attention, dice.between(1, layers),
      dice.between(0, layers - 1), dice.between(0, 1), gate, dice.pick({"sgd", "adam"}));
  return {fmt::format("Random{}", seed), json};
}

Model model_of(const SmallModel& model) { return Model::from_json(model.name, model.json, "none"); }

}  // namespace shunt::graph::test
