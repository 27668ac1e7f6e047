// What `shunt bench layer` is asked to measure.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/shuffle/config.hpp"

namespace shunt::cli {

struct LayerConfig {
  ShuffleConfig shuffle;      ///< ranks, tokens, routing, layout: what is as in `bench shuffle`
  std::int64_t ffn = 1024;    ///< elements between an expert's two products
  std::int32_t chunks = 0;    ///< `token_unique`: runs of rows that take turns in one buffer; 0: see num_chunks()
  std::int64_t verified = 2;  ///< tokens per rank that are compared with what plain loops compute
  /// On the host: ways to compute the layer (layer/moe_layer.hpp); the others are compared with the first.
  std::vector<std::string> systems = {"conventional", "expert_major", "token_unique"};
  /// On the host: a second file of expert maps, with copies of experts; empty: none.
  std::string replica_map_file;
  std::optional<ExpertMap> replicas;  ///< of replica_map_file

  /// Reads the maps, as ShuffleConfig::load_map().
  void load_maps();
  /// Throws Error(invalid_argument) that names the option.
  void check() const;

  /// What was asked for, or as many as leave each expert about 1024 rows of a run, but 2 to 8: shorter runs take more
  /// time than they are worth (docs/performance.md).
  [[nodiscard]] std::int32_t num_chunks() const;

  /// Of the experts' products: three matrices, a multiply and an add each.
  [[nodiscard]] double flop(std::int64_t rows) const {
    return 6.0 * static_cast<double>(rows) * static_cast<double>(shuffle.hidden) * static_cast<double>(ffn);
  }

  [[nodiscard]] bool is_on_device() const { return shuffle.device != "cpu"; }

  /// Bytes that all ranks on the host take together, at their peak. Expects a checked configuration.
  [[nodiscard]] double host_memory_bytes() const;

  /// What all variants on the host start from: experts in order, tokens as they are.
  [[nodiscard]] ShuffleConfig unplaced() const;

  /// The "config" of the JSON report.
  [[nodiscard]] nlohmann::ordered_json to_json(const std::string& world_name) const;
};

}  // namespace shunt::cli
