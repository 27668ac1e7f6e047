// Models that the interpreter can run, one for each way of building a layer.
#pragma once

#include <string>
#include <vector>

#include "graph/model.hpp"

namespace shunt::graph::test {

struct SmallModel {
  std::string name;
  std::string json;
};

inline void PrintTo(const SmallModel& model, std::ostream* out) { *out << model.name; }

std::vector<SmallModel> small_models();
/// Any mixture of what descriptions offer; the same for the same seed.
SmallModel random_model(std::uint64_t seed);
Model model_of(const SmallModel& model);

}  // namespace shunt::graph::test
