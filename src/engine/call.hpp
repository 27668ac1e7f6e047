// A call of an engine, as checks and errors name it.
#pragma once

#include <string_view>
#include <utility>

#include "core/fail.hpp"
#include "engine/op_kind.hpp"
#include "engine/supported.hpp"

namespace shunt {

/// Its Errors begin with rank, operation and engine: "rank 1: dispatch of 'layer 4': ". A view of the names.
struct Call {
  RankId rank;
  EngineKind kind;
  std::string_view operation;
  std::string_view engine_name;

  template <class... Args>
  [[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> text, Args&&... args) const {
    shunt::fail(code, "rank {}: {}: {}", rank, title_of(operation, engine_name),
                fmt::format(text, std::forward<Args>(args)...));
  }
  /// Throws Error(invalid_argument) unless it holds.
  template <class... Args>
  void demand(bool holds, fmt::format_string<Args...> text, Args&&... args) const {
    if (!holds) fail(ErrorCode::invalid_argument, text, std::forward<Args>(args)...);
  }
  /// Throws Error(unsupported) unless engines of this kind support the feature.
  void require(Feature feature) const {
    const FeatureSupport& support = support_of(feature);
    if (!support.of(kind)) fail(ErrorCode::unsupported, "not supported on {}: {}", name_of(kind), support.name);
  }
};

}  // namespace shunt
