#include "shunt/routing_trace.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/fail.hpp"
#include "core/trace_file.hpp"

namespace shunt {
namespace {

using trace_format::ChunkLayout;
using trace_format::SourceRun;

/// The same as f32_from_f16() for finite values. It has no branches, so that it vectorises, and avoids subnormal
/// operands, which are slow.
float f32_from_finite_f16(std::uint16_t bits) {
  constexpr std::uint32_t kLeastNormal = 1u << 23;
  constexpr std::uint32_t kBias = 112u << 23;
  const std::uint32_t magnitude = (bits & 0x7fffu) << 13;
  const std::uint32_t normal = magnitude + kBias;
  const auto subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude + kBias + kLeastNormal) - 0x1p-14f);
  const std::uint32_t is_subnormal = 0u - static_cast<std::uint32_t>(magnitude < kLeastNormal);
  return std::bit_cast<float>((subnormal & is_subnormal) | (normal & ~is_subnormal) | ((bits & 0x8000u) << 16));
}

void widen(const std::byte* from, std::span<float> out) {
  const auto* const values = reinterpret_cast<const std::uint16_t*>(from);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = f32_from_finite_f16(values[i]);
}

template <class Code>
void decode(const std::byte* from, bool can_drop, std::span<std::int32_t> out) {
  const auto* const codes = reinterpret_cast<const Code*>(from);
  const std::int32_t dropped = can_drop ? static_cast<std::int32_t>(trace_format::dropped_code(sizeof(Code))) : -1;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto code = static_cast<std::int32_t>(codes[i]);
    out[i] = code == dropped ? -1 : code;
  }
}

void spread(const SourceRun* run, std::uint32_t first, std::span<std::int32_t> out) {
  for (; first >= run->tokens; ++run) first -= run->tokens;
  for (std::size_t done = 0; done < out.size(); ++run, first = 0) {
    const std::size_t count = std::min<std::size_t>(run->tokens - first, out.size() - done);
    std::fill_n(out.begin() + static_cast<std::ptrdiff_t>(done), count, run->rank);
    done += count;
  }
}

/// Calls part(chunk, first token within the chunk, its share of `out`) for each chunk that holds some of the tokens.
template <class Value, class Part>
void read(const TraceFile& file, std::int32_t layer, const char* name, std::int64_t available, std::int64_t first,
          std::int32_t per_token, std::span<Value> out, Part&& part) {
  const auto width = static_cast<std::size_t>(per_token);
  const auto count = static_cast<std::int64_t>(out.size() / width);
  if (out.size() % width != 0)
    fail(ErrorCode::invalid_argument, "{}: layer {}: room for {} {}, expected a multiple of {}", file.path(), layer,
         out.size(), name, per_token);
  if (first < 0 || count > available || first > available - count)
    fail(ErrorCode::invalid_argument, "{}: layer {}: {} of {} tokens from token {} on; there are those of {}",
         file.path(), layer, name, count, first, available);
  if (count == 0) return;
  const auto& chunks = file.chunks(layer);
  auto chunk = std::prev(std::ranges::upper_bound(chunks, first, {}, &TraceFile::Chunk::first_token));
  for (std::int64_t done = 0; done < count; ++chunk) {
    const std::int64_t begin = first + done - chunk->first_token;
    const std::int64_t share = std::min<std::int64_t>(chunk->entry.tokens - begin, count - done);
    part(*chunk, static_cast<std::uint32_t>(begin),
         out.subspan(static_cast<std::size_t>(done) * width, static_cast<std::size_t>(share) * width));
    done += share;
  }
}

void demand(bool is_there, const TraceFile& file, const char* name) {
  if (!is_there) fail(ErrorCode::invalid_argument, "{}: the trace has no {}", file.path(), name);
}

}  // namespace

std::int64_t TraceLayer::num_tokens() const { return file_->num_tokens(layer_); }
std::int64_t TraceLayer::num_scored_tokens() const { return file_->num_scored_tokens(layer_); }

void TraceLayer::read_experts(std::int64_t first, std::span<std::int32_t> out) const {
  const TraceShape& shape = file_->shape();
  read(*file_, layer_, "experts", num_tokens(), first, shape.topk, out,
       [&](const TraceFile::Chunk& chunk, std::uint64_t begin, std::span<std::int32_t> part) {
         const std::uint32_t code_bytes = chunk.entry.expert_bytes;
         const bool can_drop = trace_format::can_drop(shape.experts, code_bytes);
         const std::byte* const from = chunk.data + ChunkLayout(shape, chunk.entry).experts +
                                       begin * static_cast<std::uint64_t>(shape.topk) * code_bytes;
         code_bytes == 1 ? decode<std::uint8_t>(from, can_drop, part) : decode<std::uint16_t>(from, can_drop, part);
       });
}

void TraceLayer::read_weights(std::int64_t first, std::span<float> out) const {
  const TraceShape& shape = file_->shape();
  demand(shape.weights, *file_, "weights");
  read(*file_, layer_, "weights", num_tokens(), first, shape.topk, out,
       [&](const TraceFile::Chunk& chunk, std::uint64_t begin, std::span<float> part) {
         widen(
             chunk.data + ChunkLayout(shape, chunk.entry).weights + begin * static_cast<std::uint64_t>(shape.topk) * 2,
             part);
       });
}

void TraceLayer::read_scores(std::int64_t first, std::span<float> out) const {
  const TraceShape& shape = file_->shape();
  demand(shape.scores, *file_, "scores");
  read(*file_, layer_, "scores", num_scored_tokens(), first, shape.experts, out,
       [&](const TraceFile::Chunk& chunk, std::uint64_t begin, std::span<float> part) {
         widen(chunk.data + ChunkLayout(shape, chunk.entry).scores +
                   begin * static_cast<std::uint64_t>(shape.experts) * 2,
               part);
       });
}

void TraceLayer::read_sources(std::int64_t first, std::span<std::int32_t> out) const {
  demand(file_->shape().sources, *file_, "sources");
  read(*file_, layer_, "sources", num_tokens(), first, 1, out,
       [](const TraceFile::Chunk& chunk, std::uint32_t begin, std::span<std::int32_t> part) {
         spread(reinterpret_cast<const SourceRun*>(chunk.data), begin, part);
       });
}

void TraceLayer::release() const {
  for (const TraceFile::Chunk& chunk : file_->chunks(layer_))
    TraceFile::release(chunk.data, ChunkLayout(file_->shape(), chunk.entry).bytes);
}

RoutingTrace RoutingTrace::open(const std::string& path) { return RoutingTrace(std::make_shared<TraceFile>(path)); }

bool RoutingTrace::recognise(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  std::array<char, trace_format::kMagic.size()> begin{};
  std::ifstream(path, std::ios::binary).read(begin.data(), begin.size());
  return std::memcmp(begin.data(), trace_format::kMagic.data(), begin.size()) == 0;
}

const TraceShape& RoutingTrace::shape() const { return file_->shape(); }

TraceLayer RoutingTrace::layer(std::int32_t layer) const {
  if (layer < 0 || layer >= shape().layers)
    fail(ErrorCode::invalid_argument, "{}: layer {}: expected 0 to {}", file_->path(), layer, shape().layers - 1);
  file_->verify(layer);
  return {file_, layer};
}

}  // namespace shunt
