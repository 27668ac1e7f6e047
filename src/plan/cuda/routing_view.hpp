// What a rank brings to a plan, as kernels read it.
#pragma once

#include <cstdint>

namespace shunt::device {

struct RoutingView {
  const std::int32_t* experts;  ///< [tokens, topk], device; −1: dropped
  const std::int32_t* copies;  ///< [tokens, topk], device: what launch_choose() chose; null: experts have one copy each
  const float* weights;        ///< [tokens, topk], device; null: all 1
  std::int64_t num_tokens;
  std::int32_t topk;
  std::int32_t self;
};

}  // namespace shunt::device
