#include "graph/small_models.hpp"

#include "graph/presets.hpp"

namespace shunt::graph::test {

std::vector<SmallModel> small_models() {
  return {
      {"Tiny", load_description("model", "tiny").text},
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

Model model_of(const SmallModel& model) { return Model::from_json(model.name, model.json, "none"); }

}  // namespace shunt::graph::test
