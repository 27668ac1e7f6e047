#include "core/trace_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <utility>

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

// These loops stay within the width of their values and have no exits, so that they vectorise.

bool all_finite(const std::uint16_t* values, std::uint64_t count) {
  std::uint16_t found = 0;
  for (std::uint64_t i = 0; i < count; ++i)
    found = static_cast<std::uint16_t>(found | ((values[i] & kF16Exponent) == kF16Exponent));
  return found == 0;
}

template <class Code>
bool all_within(const Code* codes, std::uint64_t count, Code last_expert) {
  constexpr auto kDropped = static_cast<Code>(trace_format::dropped_code(sizeof(Code)));
  Code found = 0;
  for (std::uint64_t i = 0; i < count; ++i)
    found = static_cast<Code>(found | ((codes[i] > last_expert) & (codes[i] != kDropped)));
  return found == 0;
}

/// For tokens with eight one-byte codes: true if no two codes of a token are equal, dropped ones included.
bool all_differ_in_eights(const std::uint8_t* codes, std::uint64_t tokens) {
  constexpr std::uint64_t kLow = 0x0101'0101'0101'0101;
  constexpr std::uint64_t kHigh = kLow << 7;
  std::uint64_t found = 0;
  for (std::uint64_t token = 0; token < tokens; ++token) {
    std::uint64_t word = 0;
    std::memcpy(&word, codes + token * 8, sizeof(word));
    // Rotations by 1 to 4 bytes compare every pair of codes; a zero byte in the difference means two are equal.
    for (int bits = 8; bits <= 32; bits += 8) {
      const std::uint64_t difference = word ^ std::rotl(word, bits);
      found |= (difference - kLow) & ~difference & kHigh;
    }
  }
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
  // If every code is an expert's, this value never occurs.
  const std::uint32_t dropped = trace_format::can_drop(shape_.experts, sizeof(Code))
                                    ? trace_format::dropped_code(sizeof(Code))
                                    : trace_format::dropped_code(2) + 1;
  const bool is_outside = !all_within(codes, std::uint64_t{entry.tokens} * topk, static_cast<Code>(num_experts - 1));
  if constexpr (sizeof(Code) == 1) {
    if (!is_outside && topk == 8 && all_differ_in_eights(codes, entry.tokens)) {
      num_tokens_ += entry.tokens;
      return "";
    }
  }
  last_token_.resize(std::max(last_token_.size(), std::size_t{1} << (8 * sizeof(Code))));
  std::uint64_t* const last_token = last_token_.data();
  const std::uint64_t end = num_tokens_ + entry.tokens;
  for (std::uint64_t token = std::exchange(num_tokens_, end); token < end; ++token, codes += topk) {
    bool is_wrong = is_outside;
    for (std::size_t k = 0; k < topk; ++k) {
      const std::uint32_t code = codes[k];
      is_wrong |= (last_token[code] == token + 1) & (code != dropped);
      last_token[code] = token + 1;
    }
    if (!is_wrong) [[likely]]
      continue;
    for (std::size_t k = 0; k < topk; ++k) {
      if (codes[k] == dropped) continue;
      if (codes[k] >= num_experts)
        return fmt::format("token {}: expert {} is not in 0 to {}", token, codes[k], num_experts - 1);
      if (std::find(codes, codes + k, codes[k]) != codes + k)
        return fmt::format("token {}: expert {} stands twice", token, codes[k]);
    }
  }
  return "";
}

}  // namespace shunt
