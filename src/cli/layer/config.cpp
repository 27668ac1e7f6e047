#include "cli/layer/config.hpp"

#include <algorithm>

#include "core/fail.hpp"

namespace shunt::cli {

void LayerConfig::check() const {
  const auto demand = [](bool holds, const char* option, const std::string& expected) {
    if (!holds) fail(ErrorCode::invalid_argument, "{}: expected {}", option, expected);
  };
  shuffle.check();
  demand(shuffle.layout != Layout::padded, "--layout", "expert_major or token_unique");
  demand(shuffle.dtype != fp8_e4m3, "--dtype", "f32, bf16 or f16");
  demand(shuffle.tokens >= 1, "--tokens", "at least 1");
  demand(shuffle.hidden % 8 == 0, "--hidden", "a multiple of 8");
  constexpr std::int64_t kMostFfn = 1 << 20;
  demand(ffn >= 8 && ffn <= kMostFfn && ffn % 8 == 0, "--ffn", fmt::format("a multiple of 8 up to {}", kMostFfn));
  const ExpertMap map = shuffle.map();
  for (std::int32_t rank = 0; rank < shuffle.ranks; ++rank)
    demand(map.num_local(RankId(rank)) > 0, shuffle.map_file.empty() ? "--experts" : "--map", "at least one per rank");
  constexpr std::int32_t kMostChunks = 1024;
  demand(chunks >= 0 && chunks <= kMostChunks, "--chunks", fmt::format("0 to {}", kMostChunks));
  demand(chunks == 0 || shuffle.layout == Layout::token_unique, "--chunks", "--layout token_unique with it");
  demand(verified >= 1, "--verify", "at least 1");
}

std::int32_t LayerConfig::num_chunks() const {
  if (chunks > 0) return chunks;
  const std::int64_t rows_per_expert = shuffle.tokens * shuffle.ranks * shuffle.topk / shuffle.map().num_physical();
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(rows_per_expert / 1024, 2, 8));
}

nlohmann::ordered_json LayerConfig::to_json() const {
  nlohmann::ordered_json json = shuffle.to_json(shuffle.world);
  json["ffn"] = ffn;
  if (shuffle.layout == Layout::token_unique) json["chunks"] = num_chunks();
  return json;
}

}  // namespace shunt::cli
