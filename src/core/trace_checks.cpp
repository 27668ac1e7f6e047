#include "core/trace_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>

namespace shunt {
namespace {

using trace_format::ChunkEntry;
using trace_format::SourceRun;

constexpr std::uint16_t kF16Exponent = 0x7c00;

std::string fault_of_runs(const SourceRun* runs, const ChunkEntry& entry) {
  std::uint64_t tokens = 0;
  for (const SourceRun& run : std::span(runs, entry.runs)) {
    if (run.rank < 0 || run.tokens == 0) return fmt::format("source {} of {} tokens", run.rank, run.tokens);
    tokens += run.tokens;
  }
  if (entry.runs > 0 && tokens != entry.tokens)
    return fmt::format("its sources are of {} tokens, not of {}", tokens, entry.tokens);
  return "";
}

bool all_finite(const std::uint16_t* values, std::uint64_t count) {
  unsigned found = 0;
  for (std::uint64_t i = 0; i < count; ++i) found |= (values[i] & kF16Exponent) == kF16Exponent ? 1u : 0u;
  return found == 0;
}

}  // namespace

std::string ChunkChecks::fault_of(const ChunkEntry& entry, const std::byte* chunk) {
  const trace_format::ChunkLayout layout(shape_, entry);
  if (std::string fault = fault_of_runs(reinterpret_cast<const SourceRun*>(chunk), entry); !fault.empty()) return fault;
  const auto* const weights = reinterpret_cast<const std::uint16_t*>(chunk + layout.weights);
  if (!all_finite(weights, (layout.scores - layout.weights) / 2)) return "a weight is not finite";
  const auto* const scores = reinterpret_cast<const std::uint16_t*>(chunk + layout.scores);
  if (!all_finite(scores, (layout.experts - layout.scores) / 2)) return "a score is not finite";
  const std::byte* const experts = chunk + layout.experts;
  return entry.expert_bytes == 1 ? fault_of_experts(reinterpret_cast<const std::uint8_t*>(experts), entry)
                                 : fault_of_experts(reinterpret_cast<const std::uint16_t*>(experts), entry);
}

template <class Code>
std::string ChunkChecks::fault_of_experts(const Code* codes, const ChunkEntry& entry) {
  const auto topk = static_cast<std::size_t>(shape_.topk);
  const auto num_experts = static_cast<std::uint32_t>(shape_.experts);
  // Never a code where every code is an expert's.
  const std::uint32_t dropped = trace_format::can_drop(shape_.experts, sizeof(Code))
                                    ? trace_format::dropped_code(sizeof(Code))
                                    : trace_format::dropped_code(2) + 1;
  last_token_.resize(std::max(last_token_.size(), std::size_t{1} << (8 * sizeof(Code))));
  std::uint64_t* const last_token = last_token_.data();
  for (std::uint32_t token = 0; token < entry.tokens; ++token, codes += topk) {
    ++num_tokens_;
    bool is_wrong = false;
    for (std::size_t k = 0; k < topk; ++k) {
      const std::uint32_t code = codes[k];
      is_wrong |= (code != dropped) & ((code >= num_experts) | (last_token[code] == num_tokens_));
      last_token[code] = num_tokens_;
    }
    if (!is_wrong) [[likely]]
      continue;
    for (std::size_t k = 0; k < topk; ++k) {
      if (codes[k] == dropped) continue;
      if (codes[k] >= num_experts)
        return fmt::format("token {}: expert {} is not in 0 to {}", num_tokens_ - 1, codes[k], num_experts - 1);
      if (std::find(codes, codes + k, codes[k]) != codes + k)
        return fmt::format("token {}: expert {} stands twice", num_tokens_ - 1, codes[k]);
    }
  }
  return "";
}

}  // namespace shunt
