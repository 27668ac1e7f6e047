#include "shunt/device_decoder.hpp"

#include <cstring>

#include "core/fail.hpp"
#include "core/hash.hpp"
#include "engine/cuda/engine_impl.hpp"
#include "engine/cuda/on_device.hpp"
#include "kernels/cuda/reduce_rows.hpp"
#include "kernels/cuda/send_padded.hpp"

namespace shunt {

using device::Phase;

struct DeviceDecoder::Impl {
  Impl(World& world, const DeviceHeap& heap, const ExpertMap& map, const DeviceEngineOptions& options);

  void check_routing(const DeviceRouting& routing) const;
  [[nodiscard]] device::SendPadded send(const DeviceRouting& routing, const ConstTensor& x) const;

  std::shared_ptr<DeviceEngine::Impl> engine;
  std::shared_ptr<const device::MapTables> map;
  std::uint64_t hash;
  Tensor rows;
  Tensor expert_out;
  std::shared_ptr<std::byte> counts;
  std::shared_ptr<std::byte> peers;  // [ranks] where rows begin, [ranks] where counts begin
  std::shared_ptr<std::byte> terms;

  // Of the last dispatch.
  std::int64_t num_tokens = 0;
  std::int32_t topk = 0;
  bool is_sent = false;
};

DeviceDecoder::Impl::Impl(World& world, const DeviceHeap& heap, const ExpertMap& expert_map,
                          const DeviceEngineOptions& options)
    : engine(std::make_shared<DeviceEngine::Impl>(world, heap, options)), hash(expert_map.hash()) {
  const std::int32_t num_ranks = engine->heap->num_ranks;
  if (expert_map.num_ranks() != num_ranks || expert_map.num_physical() > device::kMostPaddedExperts)
    fail(ErrorCode::invalid_argument,
         "rank {}: decoder: a map of {} ranks and {} physical experts, expected {} and at most {}", engine->self,
         expert_map.num_ranks(), expert_map.num_physical(), num_ranks, device::kMostPaddedExperts);
  if (engine->has_scales())
    fail(ErrorCode::unsupported, "rank {}: decoder: rows are fp8_e4m3, expected f32, bf16 or f16", engine->self);
  if (engine->options.reduction != Reduction::tree)
    fail(ErrorCode::invalid_argument, "rank {}: decoder: sums are a tree's", engine->self);
  const device::OnDevice scope(engine->device());
  const std::int64_t num_local = expert_map.num_local(RankId(engine->self));
  const std::int64_t num_rows = num_local * num_ranks * engine->options.max_tokens;
  constexpr std::int64_t kMostRows = std::int64_t{1} << 31;
  if (num_rows >= kMostRows)
    fail(ErrorCode::invalid_argument, "rank {}: decoder: {} rows, expected less than {}", engine->self, num_rows,
         kMostRows);
  map = engine->tables_of(expert_map);
  rows = engine->allocate(engine->options.dtype, num_rows);
  expert_out = engine->allocate(*engine->options.expert_dtype, num_rows);
  const auto ranks = static_cast<std::size_t>(num_ranks);
  counts = engine->heap->allocate(static_cast<std::size_t>(num_local) * ranks * sizeof(std::int32_t));
  terms = engine->heap->allocate(static_cast<std::size_t>(engine->options.max_tokens) * Routing::kMaxTopK *
                                 sizeof(device::Term));

  struct Places {
    std::uint64_t hash, rows, counts;
  };
  const auto& memory = engine->heap->memory;
  const Places mine{hash, memory.offset_of(rows.data), memory.offset_of(counts.get())};
  std::vector<std::byte*> pointers(2 * ranks);
  const auto all = world.all_gather(std::as_bytes(std::span(&mine, 1)));
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    Places peer;
    std::memcpy(&peer, all[rank].data(), sizeof(peer));
    if (peer.hash != hash)
      fail(ErrorCode::mismatch, "ranks {} and {} make decoders with different maps", engine->self, rank);
    pointers[rank] = memory.base_of(rank) + peer.rows;
    pointers[ranks + rank] = memory.base_of(rank) + peer.counts;
  }
  peers = engine->heap->allocate(pointers.size() * sizeof(std::byte*));
  engine->copy_when_idle(peers.get(), pointers.data(), pointers.size() * sizeof(std::byte*),
                         "tell the device of its peers");
}

void DeviceDecoder::Impl::check_routing(const DeviceRouting& routing) const {
  if (routing.topk < 1 || routing.topk > Routing::kMaxTopK || routing.num_tokens < 0 ||
      routing.num_tokens > engine->options.max_tokens || (routing.num_tokens > 0 && !routing.experts))
    fail(ErrorCode::invalid_argument, "rank {}: dispatch: a routing of {} tokens, top-{}, expected at most {} and {}",
         engine->self, routing.num_tokens, routing.topk, engine->options.max_tokens, Routing::kMaxTopK);
}

device::SendPadded DeviceDecoder::Impl::send(const DeviceRouting& routing, const ConstTensor& x) const {
  auto** pointers = reinterpret_cast<std::byte**>(peers.get());
  return {.num_experts = map->num_experts,
          .num_physical = map->num_physical,
          .num_ranks = map->num_ranks,
          .copies_begin = map->copies_begin,
          .copies = map->copies,
          .rank_of = map->rank_of,
          .key_of = map->key_of,
          .first_of_rank = map->first_of_rank,
          .node_of = map->node_of,
          .x = x.data,
          .experts = routing.experts,
          .weights = routing.weights,
          .num_tokens = static_cast<std::int32_t>(routing.num_tokens),
          .max_tokens = static_cast<std::int32_t>(engine->options.max_tokens),
          .topk = routing.topk,
          .self = engine->self,
          .row_bytes = x.row_bytes(),
          .rows = pointers,
          .counts = reinterpret_cast<std::int32_t**>(pointers + map->num_ranks),
          .terms = reinterpret_cast<device::Term*>(terms.get()),
          .stop = &engine->control.progress->fault};
}

DeviceDecoder::DeviceDecoder(World& world, const DeviceHeap& heap, const ExpertMap& map,
                             const DeviceEngineOptions& options)
    : impl_(std::make_shared<Impl>(world, heap, map, options)) {}

const Tensor& DeviceDecoder::rows() const { return impl_->rows; }
const Tensor& DeviceDecoder::expert_out() const { return impl_->expert_out; }
const std::int32_t* DeviceDecoder::source_counts() const {
  return reinterpret_cast<const std::int32_t*>(impl_->counts.get());
}
Stream DeviceDecoder::stream() const { return impl_->engine->stream; }

DeviceTicket<Tensor> DeviceDecoder::dispatch(const DeviceRouting& routing, const ConstTensor& x, Stream stream) {
  Impl& decoder = *impl_;
  DeviceEngine::Impl& engine = *decoder.engine;
  decoder.check_routing(routing);
  engine.check_tensor("dispatch", "x", x, engine.options.dtype, routing.num_tokens);
  if (decoder.is_sent)
    fail(ErrorCode::invalid_argument, "rank {}: dispatch: what was dispatched before must be combined first",
         engine.self);
  const device::OnDevice scope(engine.device());
  engine.start_after(stream);
  device::launch(decoder.send(routing, x), engine.stream);
  engine.meet({OpKind::dispatch, Phase::end, decoder.hash});
  decoder.num_tokens = routing.num_tokens;
  decoder.topk = routing.topk;
  decoder.is_sent = true;
  return {engine.pending(), decoder.rows};
}

DeviceTicket<Tensor> DeviceDecoder::combine(const DeviceCombineOptions& options) {
  Impl& decoder = *impl_;
  DeviceEngine::Impl& engine = *decoder.engine;
  if (!decoder.is_sent) fail(ErrorCode::invalid_argument, "rank {}: combine: nothing was dispatched", engine.self);
  const Tensor out = engine.output("combine", options.out, *engine.options.result_dtype, decoder.num_tokens);
  const device::OnDevice scope(engine.device());
  engine.start_after(options.stream);
  engine.meet({OpKind::combine, Phase::begin, decoder.hash}, decoder.expert_out.data);
  device::launch(device::ReduceRows{.rows = engine.control.shown,
                                    .result = out.data,
                                    .terms = reinterpret_cast<const device::Term*>(decoder.terms.get()),
                                    .num_tokens = decoder.num_tokens,
                                    .topk = decoder.topk,
                                    .hidden = engine.options.hidden,
                                    .row_dtype = *engine.options.expert_dtype,
                                    .wire_dtype = *engine.options.wire_dtype,
                                    .result_dtype = *engine.options.result_dtype,
                                    .weighted = true,
                                    .stop = &engine.control.progress->fault},
                 engine.stream);
  decoder.is_sent = false;
  return {engine.pending(), out};
}

}  // namespace shunt
