// Description of a Mixture-of-Experts transformer, and its training step as a graph.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/presets.hpp"
#include "graph/autodiff.hpp"
#include "graph/graph.hpp"
#include "shunt/dtype.hpp"

namespace shunt::graph {

struct Attention {
  enum class Kind : std::uint8_t {
    plain,   ///< scores, softmax and the product with the values are separate ops, and scores are kept
    fused,   ///< one op that keeps no scores
    latent,  ///< multi-head latent attention (DeepSeek-V2): low-rank queries and keys, fused
  } kind = Kind::plain;
  std::int64_t heads = 1, head_dim = 1;
  std::int64_t query_rank = 0, kv_rank = 0, rope_dim = 0;  ///< latent only
};

struct Gate {
  enum class Scores : std::uint8_t { softmax, sigmoid } scores = Scores::softmax;
  std::int64_t topk = 1;
  std::int64_t groups = 1, groups_kept = 1;  ///< experts are chosen within groups_kept of the groups
  bool has_bias = false;                     ///< a bias on the choice balances the load
  bool normalise = false;                    ///< the weights of a token sum to `scale`
  double scale = 1;
  double capacity_factor = 0;  ///< 0: no token is dropped
  double balance_loss = 0;     ///< factor of the balance loss; 0: none
};

struct Moe {
  std::int64_t every = 1, first = 0;  ///< layers first, first + every, … have experts
  std::int64_t experts = 0;           ///< in total; or experts_per_rank is given
  std::int64_t experts_per_rank = 0;
  std::int64_t hidden = 1, shared = 0;
  Gate gate;
};

struct Model {
  std::string name, origin;
  std::int64_t layers = 1, hidden = 1, vocabulary = 1, sequence = 1, sequences_per_rank = 1, ffn_hidden = 1;
  DType dtype = DType::f32;
  bool has_rope = false, is_tied = false, is_gated = false, has_rms_norm = false;
  bool interleaves_micro_batches = false;
  Attention attention;
  std::optional<Moe> moe;
  Optimizer optimizer;

  /// Parses a description. Numbers that differ by device take the "default" unless `device` is listed. Throws
  /// Error(invalid_argument) with source and key.
  static Model from_json(const std::string& source, const std::string& text, const std::string& device);
  /// name_or_file: a preset's name, or a file.
  static Model load(const std::string& name_or_file, const std::string& device);
};

/// The presets of presets/models.
std::span<const Preset> model_presets();

/// The forward pass on one of `ranks` ranks; the first output is the loss, the last one its cross entropy (the
/// same, unless a loss balances the experts).
Graph build_forward(const Model& model, std::int32_t ranks);

/// Forward, backward and updates in program order: dW beside its dX, an all-reduce once its gradient is ready.
Graph build_training_step(const Model& model, std::int32_t ranks);

}  // namespace shunt::graph
