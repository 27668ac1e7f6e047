#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/fail.hpp"
#include "core/file.hpp"
#include "core/narrow_routing.hpp"
#include "core/trace_format.hpp"
#include "shunt/float_formats.hpp"
#include "shunt/routing_trace.hpp"

namespace shunt {
namespace {

using namespace trace_format;

// Bytes that a layer buffers. Small, so that many layers fit into memory and a chunk fits into a reader's cache; large
// enough that the entries of the index, 32 bytes each, are negligible.
constexpr std::size_t kChunkBytes = std::size_t{256} << 10;

constexpr float kLargestF16 = 65504.0f;

std::uint16_t narrow(float value) { return f16_from_f32(std::clamp(value, -kLargestF16, kLargestF16)); }

/// Tokens of a layer that are not in a chunk yet.
struct Pending {
  std::vector<std::uint16_t> experts;  ///< codes of two bytes
  std::vector<std::uint16_t> weights;
  std::vector<std::uint16_t> scores;
  std::vector<SourceRun> runs;
  std::uint32_t tokens = 0;
  std::uint32_t scored = 0;
  bool has_drops = false;
  bool all_scored = true;  ///< all tokens of the layer so far have scores, including those in chunks

  [[nodiscard]] std::size_t bytes() const {
    return (experts.size() + weights.size() + scores.size()) * 2 + runs.size() * sizeof(SourceRun);
  }
};

template <class Value>
void append_bytes(std::vector<std::byte>& to, const std::vector<Value>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

}  // namespace

struct TraceWriter::Impl {
  Impl(const std::string& path, const TraceShape& trace_shape);

  void check(std::int32_t layer, const Routing& routing, std::span<const float> scores, RankId source);
  void buffer(Pending& layer, const Routing& routing, std::span<const float> scores, RankId source);
  void write_chunk(std::int32_t layer);
  void write_end();
  void demand_open() const;
  [[nodiscard]] Header header() const;

  std::string path;
  TraceShape shape;
  PartialFile file;
  std::vector<Pending> layers;
  std::vector<ChunkEntry> index;
  std::uint64_t offset = sizeof(Header);
  std::vector<std::byte> chunk;
  std::vector<std::uint64_t> last_token;  // by expert: index, over all calls, of the last token that named it
  std::uint64_t num_tokens = 0;
  bool is_broken = false;
  bool is_finished = false;

 private:
  static const TraceShape& checked(const std::string& path, const TraceShape& shape);
};

const TraceShape& TraceWriter::Impl::checked(const std::string& path, const TraceShape& shape) {
  const auto demand = [&](const char* name, std::int32_t value, std::int32_t most) {
    if (value < 1 || value > most)
      fail(ErrorCode::invalid_argument, "{}: {} {}, expected 1 to {}", path, value, name, most);
  };
  demand("layers", shape.layers, TraceShape::kMaxLayers);
  demand("experts", shape.experts, TraceShape::kMaxExperts);
  demand("choices per token", shape.topk, Routing::kMaxTopK);
  return shape;
}

TraceWriter::Impl::Impl(const std::string& trace_path, const TraceShape& trace_shape)
    : path(trace_path),
      shape(checked(trace_path, trace_shape)),
      file(trace_path),
      layers(static_cast<std::size_t>(shape.layers)),
      last_token(static_cast<std::size_t>(shape.experts)) {
  // Marks the file as half-written for readers of its temporary name.
  const Header unfinished = header();
  file.write_at(0, std::as_bytes(std::span(&unfinished, 1)));
}

Header TraceWriter::Impl::header() const {
  Header header;
  header.contents = (shape.weights ? kWeights : 0u) | (shape.scores ? kScores : 0u) | (shape.sources ? kSources : 0u);
  header.layers = static_cast<std::uint32_t>(shape.layers);
  header.experts = static_cast<std::uint32_t>(shape.experts);
  header.topk = static_cast<std::uint32_t>(shape.topk);
  if (is_finished) {
    header.index_offset = offset;
    header.num_chunks = index.size();
    header.index_checksum = checksum(std::as_bytes(std::span(index)));
  }
  header.checksum = header_checksum(header);
  return header;
}

void TraceWriter::Impl::demand_open() const {
  if (is_broken) fail(ErrorCode::system, "can't write {}: an earlier write failed", path);
  if (is_finished) fail(ErrorCode::invalid_argument, "{}: the trace is finished", path);
}

void TraceWriter::Impl::check(std::int32_t layer, const Routing& routing, std::span<const float> scores,
                              RankId source) {
  const auto refuse = [&]<class... Args>(fmt::format_string<Args...> text, Args&&... args) {
    fail(ErrorCode::invalid_argument, "{}: layer {}: {}", path, layer, fmt::format(text, std::forward<Args>(args)...));
  };
  if (layer < 0 || layer >= shape.layers) refuse("expected 0 to {}", shape.layers - 1);
  if (routing.topk != shape.topk) refuse("topk is {}, expected {}", routing.topk, shape.topk);
  const auto topk = static_cast<std::size_t>(shape.topk);
  if (routing.experts.size() % topk != 0)
    refuse("{} experts, expected a multiple of topk {}", routing.experts.size(), topk);
  if (!routing.weights.empty() && routing.weights.size() != routing.experts.size())
    refuse("{} weights for {} experts", routing.weights.size(), routing.experts.size());
  if (shape.sources && !source.valid()) refuse("no source rank, which this trace keeps");
  for (std::size_t entry = 0; entry < routing.experts.size(); ++entry) {
    if (entry % topk == 0) ++num_tokens;
    const std::int32_t expert = routing.experts.narrow()[entry];
    if (expert == -1) continue;
    if (expert < 0 || expert >= shape.experts)
      refuse("token {}: expert {} is not in 0 to {}, nor -1 (dropped)", entry / topk, expert, shape.experts - 1);
    if (std::exchange(last_token[static_cast<std::size_t>(expert)], num_tokens) == num_tokens)
      refuse("token {}: expert {} stands twice", entry / topk, expert);
    if (shape.weights && !std::isfinite(routing.weight(entry)))
      refuse("token {}: a weight is {}", entry / topk, routing.weight(entry));
  }
  if (!shape.scores || scores.empty()) return;
  const auto num_experts = static_cast<std::size_t>(shape.experts);
  if (scores.size() % num_experts != 0 || scores.size() / num_experts > routing.num_tokens())
    refuse("{} scores for {} tokens, expected {} for each of the first", scores.size(), routing.num_tokens(),
           num_experts);
  if (!layers[static_cast<std::size_t>(layer)].all_scored)
    refuse("scores after tokens without scores; only a layer's first tokens can have them");
  for (std::size_t i = 0; i < scores.size(); ++i)
    if (!std::isfinite(scores[i])) refuse("token {}: a score is {}", i / num_experts, scores[i]);
}

void TraceWriter::Impl::buffer(Pending& layer, const Routing& routing, std::span<const float> scores, RankId source) {
  const auto dropped = static_cast<std::uint16_t>(dropped_code(2));
  for (std::size_t entry = 0; entry < routing.experts.size(); ++entry) {
    const bool is_dropped = routing.experts.narrow()[entry] < 0;
    layer.has_drops |= is_dropped;
    layer.experts.push_back(is_dropped ? dropped : static_cast<std::uint16_t>(routing.experts.narrow()[entry]));
    if (shape.weights) layer.weights.push_back(is_dropped ? std::uint16_t{0} : narrow(routing.weight(entry)));
  }
  for (const float score : scores) layer.scores.push_back(narrow(score));
  const auto tokens = static_cast<std::uint32_t>(routing.num_tokens());
  const auto scored = static_cast<std::uint32_t>(scores.size() / static_cast<std::size_t>(shape.experts));
  layer.tokens += tokens;
  layer.scored += scored;
  layer.all_scored &= scored == tokens;
  if (!shape.sources) return;
  if (layer.runs.empty() || layer.runs.back().rank != source.value) layer.runs.push_back({source.value, 0});
  layer.runs.back().tokens += tokens;
}

void TraceWriter::Impl::write_chunk(std::int32_t number) {
  Pending& layer = layers[static_cast<std::size_t>(number)];
  ChunkEntry entry;
  entry.layer = static_cast<std::uint32_t>(number);
  entry.tokens = layer.tokens;
  entry.scored = layer.scored;
  entry.runs = static_cast<std::uint32_t>(layer.runs.size());
  entry.expert_bytes = shape.experts < 256 || (shape.experts == 256 && !layer.has_drops) ? 1 : 2;
  chunk.clear();
  append_bytes(chunk, layer.runs);
  append_bytes(chunk, layer.weights);
  append_bytes(chunk, layer.scores);
  if (entry.expert_bytes == 1)
    for (const std::uint16_t code : layer.experts) chunk.push_back(static_cast<std::byte>(code));
  else
    append_bytes(chunk, layer.experts);
  chunk.resize(ChunkLayout(shape, entry).bytes);
  entry.checksum = checksum(chunk);
  file.write_at(offset, chunk);
  offset += chunk.size();
  index.push_back(entry);

  layer.experts.clear();
  layer.weights.clear();
  layer.scores.clear();
  layer.runs.clear();
  layer.tokens = 0;
  layer.scored = 0;
  layer.has_drops = false;
}

void TraceWriter::Impl::write_end() {
  for (std::int32_t layer = 0; layer < shape.layers; ++layer)
    if (layers[static_cast<std::size_t>(layer)].tokens > 0) write_chunk(layer);
  file.write_at(offset, std::as_bytes(std::span(index)));
  is_finished = true;
  const Header finished = header();
  file.write_at(0, std::as_bytes(std::span(&finished, 1)));
  file.complete();
}

TraceWriter::TraceWriter(const std::string& path, const TraceShape& shape)
    : impl_(std::make_unique<Impl>(path, shape)) {}
TraceWriter::~TraceWriter() = default;
TraceWriter::TraceWriter(TraceWriter&&) noexcept = default;
TraceWriter& TraceWriter::operator=(TraceWriter&&) noexcept = default;

void TraceWriter::append(std::int32_t layer, const Routing& given, std::span<const float> scores, RankId source) {
  Impl& writer = *impl_;
  const NarrowRouting narrow(given, {writer.path});
  const Routing& routing = narrow.get();
  writer.demand_open();
  writer.check(layer, routing, scores, source);
  Pending& pending = writer.layers[static_cast<std::size_t>(layer)];
  const auto topk = static_cast<std::size_t>(writer.shape.topk);
  const auto num_experts = static_cast<std::size_t>(writer.shape.experts);
  const std::size_t num_scored = writer.shape.scores ? scores.size() / num_experts : 0;
  writer.is_broken = true;  // reset below if everything succeeds
  for (std::size_t first = 0; first < routing.num_tokens();) {
    const bool is_scored = first < num_scored;
    const std::size_t left = (is_scored ? num_scored : routing.num_tokens()) - first;
    const std::size_t token_bytes = (topk * (writer.shape.weights ? 2 : 1) + (is_scored ? num_experts : 0)) * 2;
    const std::size_t room = (kChunkBytes - std::min(kChunkBytes, pending.bytes())) / token_bytes;
    if (room == 0 && pending.tokens > 0) {
      writer.write_chunk(layer);
      continue;
    }
    const std::size_t count = std::min(left, std::max<std::size_t>(room, 1));
    const Routing part = {
        routing.experts.narrow().subspan(first * topk, count * topk),
        routing.weights.empty() ? routing.weights : routing.weights.subspan(first * topk, count * topk), routing.topk};
    writer.buffer(pending, part, is_scored ? scores.subspan(first * num_experts, count * num_experts) : scores.first(0),
                  source);
    first += count;
  }
  writer.is_broken = false;
}

void TraceWriter::finish() {
  impl_->demand_open();
  impl_->is_broken = true;
  impl_->write_end();
  impl_->is_broken = false;
}

}  // namespace shunt
