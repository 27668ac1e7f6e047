// Models that are small enough for the interpreter, one for each kind of layer.
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
/// A random combination of what descriptions offer; equal seeds give equal models.
SmallModel random_model(std::uint64_t seed);
Model model_of(const SmallModel& model);

}  // namespace shunt::graph::test
