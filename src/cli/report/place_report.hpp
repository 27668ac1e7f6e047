// What `shunt place --json` wrote, read back and checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json_fields.hpp"

namespace shunt::cli {

struct PlaceReport {
  struct Figures {
    double c_t = 0, c_t_node = 0;  ///< ranks and nodes that a token's experts are on, mean over tokens
    double load = 0;               ///< the busiest rank's over the mean
    double estimated_ms = 0;
  };

  struct Layer {
    std::int64_t number = 0;
    Figures training;
    std::optional<Figures> held_out;
    std::optional<double> load_limit;
    std::vector<double> rank_load;  ///< over the mean, one per rank
  };

  struct Method {
    std::string name;
    Figures training;
    std::optional<Figures> held_out;
    std::vector<Layer> layers;
  };

  /// How often experts of a layer are chosen together, and two orders of them.
  struct Heat {
    std::int64_t layer = 0;
    std::vector<double> co_activation;    ///< [experts, experts], 0 to 1
    std::vector<std::size_t> before;      ///< experts in order
    std::vector<std::size_t> after;       ///< experts by rank, an expert with copies several times
    std::vector<std::size_t> rank_begin;  ///< in `after`, and its end
  };

  std::string trace, objective, cluster, dtype;
  std::int64_t experts = 0, topk = 0, nodes = 0, ranks_per_node = 0, hidden = 0;
  double replicas = 0;  ///< per cent
  std::optional<double> load_limit;
  std::optional<double> holdout;  ///< share of the tokens that maps are not made from
  /// At least one; all with the same layers, at least one, and with held-out figures everywhere or nowhere.
  std::vector<Method> methods;
  std::vector<Heat> heat;

  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(nodes * ranks_per_node); }
};

/// Throws Error(invalid_argument) with the file and the key of what is missing or contradicts something else.
PlaceReport read_place_report(JsonFields& fields);

/// A whole HTML page. `source` is the file that the report was read from.
std::string make_place_page(const PlaceReport& report, const std::string& source);

}  // namespace shunt::cli
