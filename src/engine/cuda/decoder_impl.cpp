#include "engine/cuda/decoder_impl.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/cuda/on_device.hpp"
#include "core/fail.hpp"
#include "core/hash.hpp"
#include "engine/cuda/fault.hpp"
#include "engine/cuda/send_and_meet.hpp"
#include "kernels/cuda/quantise_rows.hpp"
#include "kernels/cuda/reduce_rows.hpp"
#include "plan/cuda/choose.hpp"
#include "transport/cuda/regrouping.hpp"

namespace shunt {

using device::Phase;

DeviceDecoder::Impl::Impl(World& world, const DeviceHeap& heap, const ExpertMap& expert_map,
                          const DeviceEngineOptions& options)
    : engine(std::make_shared<DeviceEngine::Impl>(world, heap, options)),
      hash(expert_map.hash()),
      is_left_out_(static_cast<std::size_t>(engine->heap->num_ranks)) {
  check_options(expert_map);
  const std::int64_t runs = std::int64_t{expert_map.num_local(RankId(engine->self))} * engine->heap->num_ranks;
  const std::int64_t num_rows = runs * engine->options.max_tokens;
  constexpr std::int64_t kMostRows = std::int64_t{1} << 31;
  if (num_rows >= kMostRows)
    fail(ErrorCode::invalid_argument, "rank {}: decoder: {} rows, expected less than {}", engine->self, num_rows,
         kMostRows);
  const device::OnDevice scope(engine->device());
  map = engine->tables_of(expert_map);
  rows = engine->allocate(engine->options.dtype, num_rows);
  if (engine->has_scales()) {
    row_scales = engine->allocate(f32, num_rows, engine->num_scales());
    make_room_to_quantise();
  }
  expert_out = engine->allocate(*engine->options.expert_dtype, num_rows);
  counts = engine->heap->allocate(static_cast<std::size_t>(runs) * sizeof(std::int32_t));
  terms_ = engine->heap->allocate(static_cast<std::size_t>(engine->options.max_tokens) * Routing::kMaxTopK *
                                  sizeof(device::Term));
  if (map->has_replicas())
    copies_ = engine->heap->allocate(static_cast<std::size_t>(engine->options.max_tokens) * Routing::kMaxTopK *
                                     sizeof(std::int32_t));
  make_elsewhere();
  meet_peers(world);
}

DeviceDecoder::Impl::~Impl() {
  // The engine waits too, but blocks are let go of before it, and tickets may keep it.
  (void)cudaStreamSynchronize(engine->stream);
  // Ranks that come late, or were left out, may still write here.
  if (!engine->has_failed() && std::ranges::find(is_left_out_, true) == is_left_out_.end()) return;
  engine->keep_what_peers_may_write();
  for (const std::byte* written : {rows.data, row_scales.data, counts.get(), elsewhere_block_.get()})
    if (written) engine->heap->memory.keep(engine->heap->memory.offset_of(written));
}

void DeviceDecoder::Impl::check_options(const ExpertMap& expert_map) const {
  const std::int32_t num_ranks = engine->heap->num_ranks;
  if (expert_map.num_ranks() != num_ranks || expert_map.num_physical() > device::kMostPaddedExperts)
    fail(ErrorCode::invalid_argument,
         "rank {}: decoder: a map of {} ranks and {} physical experts, expected {} and at most {}", engine->self,
         expert_map.num_ranks(), expert_map.num_physical(), num_ranks, device::kMostPaddedExperts);
  if (engine->options.reduction != Reduction::tree)
    fail(ErrorCode::invalid_argument, "rank {}: decoder: sums are a tree's", engine->self);
  if (engine->options.sms != 0)
    fail(ErrorCode::unsupported, "rank {}: decoder: sms is {}, but its kernels are as wide as there are tokens",
         engine->self, engine->options.sms);
}

void DeviceDecoder::Impl::make_room_to_quantise() {
  quantised_.x = engine->allocate(fp8_e4m3, engine->options.max_tokens);
  quantised_.scales = engine->allocate(f32, engine->options.max_tokens, engine->num_scales());
  const std::array pointers{quantised_.x.data, quantised_.scales.data};
  quantised_.pointers = engine->heap->allocate(sizeof(pointers));
  engine->copy_when_idle(quantised_.pointers.get(), pointers.data(), sizeof(pointers), "tell where to quantise");
}

void DeviceDecoder::Impl::make_elsewhere() {
  const auto num_ranks = static_cast<std::size_t>(engine->heap->num_ranks);
  elsewhere_ = engine->control;
  elsewhere_.shape.num_words = 0;
  elsewhere_.deadline_ns *= 2;  // ranks may notice a loss one after the other
  elsewhere_block_ = engine->heap->allocate(elsewhere_.shape.bytes());
  const std::size_t own_bytes = 2 * num_ranks * sizeof(void*) + sizeof(device::Progress) + sizeof(std::uint64_t);
  elsewhere_own_ = engine->heap->allocate(own_bytes);
  elsewhere_.shown = reinterpret_cast<std::byte**>(elsewhere_own_.get());
  furthest_round_ = reinterpret_cast<unsigned long long*>(elsewhere_.shown + 2 * num_ranks);
  elsewhere_.progress = reinterpret_cast<device::Progress*>(furthest_round_ + 1);
  const std::vector<std::byte> zeros(std::max(elsewhere_.shape.bytes(), own_bytes));
  engine->copy_when_idle(elsewhere_block_.get(), zeros.data(), elsewhere_.shape.bytes(), "clear signals");
  engine->copy_when_idle(elsewhere_own_.get(), zeros.data(), own_bytes, "clear progress");
}

void DeviceDecoder::Impl::meet_peers(World& world) {
  const auto num_ranks = static_cast<std::size_t>(engine->heap->num_ranks);
  const auto& memory = engine->heap->memory;
  struct Introduction {
    std::uint64_t hash;
    std::array<std::uint64_t, kNumPlaces> offsets;
  };
  Introduction mine{.hash = hash, .offsets = {}};
  mine.offsets[kRows] = memory.offset_of(rows.data);
  mine.offsets[kRowScales] = row_scales.data ? memory.offset_of(row_scales.data) : 0;
  mine.offsets[kCounts] = memory.offset_of(counts.get());
  mine.offsets[kExpertOut] = memory.offset_of(expert_out.data);
  mine.offsets[kRegrouping] = memory.offset_of(elsewhere_block_.get());
  const auto all = world.all_gather(std::as_bytes(std::span(&mine, 1)));
  std::vector<std::byte*> pointers(kNumPlaces * num_ranks);
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    Introduction peer;
    std::memcpy(&peer, all[rank].data(), sizeof(peer));
    if (peer.hash != hash)
      fail(ErrorCode::mismatch, "ranks {} and {} make decoders with different maps", engine->self, rank);
    for (std::size_t i = 0; i < kNumPlaces; ++i)
      pointers[i * num_ranks + rank] = memory.base_of(rank) + peer.offsets[i];
  }
  peers_ = engine->heap->allocate(pointers.size() * sizeof(std::byte*));
  engine->copy_when_idle(peers_.get(), pointers.data(), pointers.size() * sizeof(std::byte*),
                         "tell the device of its peers");
  elsewhere_.blocks = peers(kRegrouping);
}

void DeviceDecoder::Impl::check_stage(std::string_view operation, Stage expected) const {
  if (stage == expected) return;
  engine->throw_if_faulty();  // which may be why an operation is called again
  const char* const last = stage == Stage::combined   ? "combine"
                           : stage == Stage::sent     ? "dispatch_send"
                           : stage == Stage::received ? "dispatch"
                                                      : "combine_send";
  fail(ErrorCode::invalid_argument, "rank {}: {} can't follow {}: dispatch and combine take turns", engine->self,
       operation, last);
}

void DeviceDecoder::Impl::check_routing(const DeviceRouting& routing) const {
  if (routing.topk < 1 || routing.topk > Routing::kMaxTopK || routing.num_tokens < 0 ||
      routing.num_tokens > engine->options.max_tokens || (routing.num_tokens > 0 && !routing.experts))
    fail(ErrorCode::invalid_argument, "rank {}: dispatch: a routing of {} tokens, top-{}, expected at most {} and {}",
         engine->self, routing.num_tokens, routing.topk, engine->options.max_tokens, Routing::kMaxTopK);
}

void DeviceDecoder::Impl::check_input(const DeviceRouting& routing, const ConstTensor& x) const {
  if (engine->has_scales() && x.dtype == fp8_e4m3)
    fail(ErrorCode::unsupported, "rank {}: dispatch: x is fp8_e4m3, expected f32, bf16 or f16, which is quantised here",
         engine->self);
  engine->check_tensor("dispatch", "x", x, engine->has_scales() ? x.dtype : engine->options.dtype, routing.num_tokens);
}

const std::int32_t* DeviceDecoder::Impl::choose_copies(const DeviceRouting& routing) const {
  auto* const copies = reinterpret_cast<std::int32_t*>(copies_.get());
  device::launch_choose({.experts = routing.experts,
                         .copies = nullptr,
                         .weights = nullptr,
                         .num_tokens = routing.num_tokens,
                         .topk = routing.topk,
                         .self = engine->self},
                        *map, copies, engine->stream);
  return copies;
}

device::SendPadded DeviceDecoder::Impl::sending(const DeviceRouting& routing, const ConstTensor& x) const {
  return {.map = map->has_replicas() ? map->of_copies() : *map,
          .x = x.data,
          .scales = reinterpret_cast<const float*>(quantised_.scales.data),
          .experts = map->has_replicas() ? choose_copies(routing) : routing.experts,
          .weights = routing.weights,
          .num_tokens = static_cast<std::int32_t>(routing.num_tokens),
          .max_tokens = static_cast<std::int32_t>(engine->options.max_tokens),
          .topk = routing.topk,
          .self = engine->self,
          .row_bytes = x.row_bytes(),
          .num_scales = static_cast<std::int32_t>(row_scales.cols),
          .rows = peers(kRows),
          .row_scales = reinterpret_cast<float* const*>(peers(kRowScales)),
          .counts = reinterpret_cast<std::int32_t* const*>(peers(kCounts)),
          .terms = reinterpret_cast<device::Term*>(terms_.get()),
          .stop = &engine->control.progress->fault};
}

void DeviceDecoder::Impl::send(const DeviceRouting& routing, const ConstTensor& x, Stream after,
                               device::MeetingPart part) {
  check_routing(routing);
  check_input(routing, x);
  check_stage("dispatch", Stage::combined);
  const device::OnDevice scope(engine->device());
  engine->start_after(after);
  const device::Tag tag{OpKind::dispatch, Phase::end, hash};
  if (engine->has_scales())
    device::launch(device::quantise_tokens(x, reinterpret_cast<std::byte**>(quantised_.pointers.get()),
                                           &engine->control.progress->fault),
                   engine->stream);
  const ConstTensor& sent = engine->has_scales() ? ConstTensor(quantised_.x) : x;
  device::launch(device::SendAndMeet{sending(routing, sent), engine->control, {0, 0, tag.packed()}, part},
                 engine->stream);
  num_tokens_ = routing.num_tokens;
  topk_ = routing.topk;
}

DeviceTicket<Tensor> DeviceDecoder::Impl::receive(const DeviceCombineOptions& options, device::MeetingPart part) {
  const Tensor out = engine->output("combine", options.out, *engine->options.result_dtype, num_tokens_);
  const device::OnDevice scope(engine->device());
  engine->start_after(options.stream);
  engine->meet({OpKind::combine, Phase::begin, hash}, part);
  device::launch(device::ReduceRows{.rows = peers(kExpertOut),
                                    .result = out.data,
                                    .terms = reinterpret_cast<const device::Term*>(terms_.get()),
                                    .num_tokens = num_tokens_,
                                    .topk = topk_,
                                    .hidden = engine->options.hidden,
                                    .row_dtype = *engine->options.expert_dtype,
                                    .wire_dtype = *engine->options.wire_dtype,
                                    .result_dtype = *engine->options.result_dtype,
                                    .weighted = true,
                                    .stop = &engine->control.progress->fault},
                 engine->stream);
  stage = Stage::combined;
  return {engine->pending(), out};
}

void DeviceDecoder::Impl::leave_out(std::span<const RankId> ranks) {
  if (engine->is_capturing())
    fail(ErrorCode::invalid_argument, "rank {}: leave_out: the host can't wait for what is being captured",
         engine->self);
  for (const RankId rank : ranks)
    if (rank.value < 0 || rank.value >= engine->heap->num_ranks || rank.value == engine->self)
      fail(ErrorCode::invalid_argument, "rank {}: leave_out: rank {} is not one of the {} others", engine->self, rank,
           engine->heap->num_ranks - 1);
  for (const RankId rank : ranks) is_left_out_[rank.index()] = true;
  const device::OnDevice scope(engine->device());
  Hasher who;
  for (std::size_t rank = 0; rank < is_left_out_.size(); ++rank) {
    if (!is_left_out_[rank]) continue;
    who.add(rank);
    std::byte* const nowhere = nullptr;
    for (const auto table : {engine->control.blocks, peers(kRows), peers(kRowScales), peers(kCounts), peers(kExpertOut),
                             peers(kRegrouping)})
      engine->copy_when_idle(const_cast<std::byte**>(table + rank), &nowhere, sizeof(nowhere), "leave a rank out");
  }
  device::check(cudaStreamSynchronize(engine->stream), "leave ranks out");
  engine->page().fault = {};
  engine->watch().leave_out(is_left_out_);
  stage = Stage::combined;
  const device::Tag tag{OpKind::leave_out, Phase::begin, who.value()};
  device::launch(device::Regrouping{engine->control, elsewhere_, num_regroupings_ + 1, tag.packed(), furthest_round_},
                 engine->stream);
  std::uint64_t round = 0;
  engine->copy_when_idle(&round, furthest_round_, sizeof(round), "regroup");
  num_regroupings_ = round - 1;
  device::throw_if_faulty(engine->page().fault, engine->watch(), RankId(engine->self), 2 * *engine->options.deadline);
  ++num_regroupings_;
}

}  // namespace shunt
