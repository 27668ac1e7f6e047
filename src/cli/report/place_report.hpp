// The contents of a report of `shunt place --json`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json_fields.hpp"

namespace shunt::cli {

struct PlaceReport {
  struct Figures {
    double c_t = 0, c_t_node = 0;  ///< mean number of ranks and nodes that a token is sent to
    double load = 0;               ///< of the busiest rank, over the mean
    double estimated_ms = 0;
  };

  struct Layer {
    std::int64_t number = 0;
    Figures training;
    std::optional<Figures> held_out;
    std::optional<double> load_limit;
    std::vector<double> rank_load;  ///< of each rank, over the mean
  };

  struct Method {
    std::string name;
    Figures training;
    std::optional<Figures> held_out;
    std::vector<Layer> layers;
  };

  /// How often the experts of a layer are chosen together, and their order before and after placement.
  struct Heat {
    std::int64_t layer = 0;
    std::vector<double> co_activation;  ///< [experts, experts], 0 to 1
    std::vector<std::size_t> before;    ///< experts in order
    std::vector<std::size_t> after;     ///< experts by rank; an expert with copies occurs several times
    std::vector<std::size_t>
        rank_begin;  ///< index into `after` of each rank's first expert; the last entry is its size
  };

  std::string trace, objective, cluster, dtype;
  std::int64_t experts = 0, topk = 0, nodes = 0, ranks_per_node = 0, hidden = 0;
  double replicas = 0;  ///< per cent
  std::optional<double> load_limit;
  std::optional<double> holdout;  ///< share of the tokens that were not used to make the maps
  /// At least one method. All have the same layers, at least one, and all or none have held-out figures.
  std::vector<Method> methods;
  std::vector<Heat> heat;

  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(nodes * ranks_per_node); }
};

/// Throws Error(invalid_argument) with the file and the key of a value that is missing or contradicts another.
PlaceReport read_place_report(JsonFields& fields);

}  // namespace shunt::cli
