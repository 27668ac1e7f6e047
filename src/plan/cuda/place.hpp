// The last step of a plan: computes each row's slot, the order in which rows are sent, and the order in which they are
// summed.
#pragma once

#include <cuda_runtime_api.h>

#include "plan/cuda/map_tables.hpp"
#include "plan/cuda/plan_arrays.hpp"
#include "plan/cuda/routing_view.hpp"

namespace shunt::device {

struct Place {
  RoutingView routing;
  MapTables map;
  PlanShape shape;
  PlanArrays plan;
  std::byte* const* unique_maps;  ///< [ranks], device; `token_unique` only: every rank's UniqueMaps
  bool flat;                      ///< rows are summed without partial sums
  const std::uint32_t* stop;      ///< device; if the word is not 0, the kernel does nothing
};

/// Fills segments and terms and, in `token_unique`, this rank's part of all ranks' maps.
void launch(const Place& place, cudaStream_t stream);
void preload_place();

}  // namespace shunt::device
