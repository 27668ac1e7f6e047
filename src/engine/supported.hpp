// The features that each kind of engine supports. docs/errors.md shows the table; a test compares it with this one and
// with what engines refuse.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace shunt {

enum class EngineKind : std::uint8_t {
  host,     ///< host memory
  node,     ///< devices of one node
  cluster,  ///< devices of several nodes
};

enum class Feature : std::uint8_t {
  companions,
  trace,
  streams,
  bounds,
  padded,
  padded_gradients,
  packed_gradients,
  padded_scales,
  padded_outputs,
  rounded_ranks,
  few_sms,
  strided_outputs,
  foreign_outputs,
  device_inputs,
  other_devices,
  leaving_out,
  counts_on_host,
};

struct FeatureSupport {
  Feature feature;
  std::string_view name;  ///< in errors and in the table
  std::array<bool, 3> by_kind;

  [[nodiscard]] constexpr bool of(EngineKind kind) const { return by_kind[static_cast<std::size_t>(kind)]; }
};

inline constexpr std::array kSupport = {
    FeatureSupport{Feature::companions, "companions of rows", {true, false, false}},
    FeatureSupport{Feature::trace, "recording routings (trace)", {true, false, true}},
    FeatureSupport{Feature::streams, "a stream", {false, true, true}},
    FeatureSupport{Feature::bounds, "a bound on rows (max_rows, overflow, rows of a plan)", {false, true, false}},
    FeatureSupport{Feature::padded, "layout padded", {true, true, false}},
    FeatureSupport{Feature::padded_gradients, "gradients of padded rows", {true, false, false}},
    FeatureSupport{Feature::packed_gradients, "gradients of packed rows", {false, false, false}},
    FeatureSupport{Feature::padded_scales, "fp8 x with scales for padded rows", {true, false, false}},
    FeatureSupport{Feature::padded_outputs, "an output of the caller's for padded rows", {true, false, false}},
    FeatureSupport{Feature::rounded_ranks, "rank_dtype other than f32", {false, false, false}},
    FeatureSupport{Feature::few_sms, "few multiprocessors (sms)", {false, true, false}},
    FeatureSupport{Feature::strided_outputs, "outputs with a row stride", {true, false, false}},
    FeatureSupport{Feature::foreign_outputs, "outputs in other memory than the engine's", {false, false, false}},
    FeatureSupport{Feature::device_inputs, "tensors in device memory", {false, true, true}},
    FeatureSupport{Feature::other_devices, "tensors of another device than the engine's", {false, true, false}},
    FeatureSupport{Feature::leaving_out, "leaving ranks out", {false, true, false}},
    FeatureSupport{Feature::counts_on_host, "a plan's arrays, drops and traffic without read()", {true, false, true}},
};
static_assert([] {
  for (std::size_t i = 0; i < kSupport.size(); ++i)
    if (kSupport[i].feature != static_cast<Feature>(i)) return false;
  return true;
}());

inline constexpr std::string_view name_of(EngineKind kind) {
  switch (kind) {
    case EngineKind::host: return "host memory";
    case EngineKind::node: return "devices of one node";
    case EngineKind::cluster: return "devices of several nodes";
  }
  return "unknown memory";
}

inline constexpr const FeatureSupport& support_of(Feature feature) {
  return kSupport[static_cast<std::size_t>(feature)];
}

}  // namespace shunt
