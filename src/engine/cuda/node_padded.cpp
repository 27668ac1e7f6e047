// `padded` on devices of one node: no planning, and every operation in two halves.
#include <algorithm>
#include <array>
#include <cstring>

#include "core/cuda/on_device.hpp"
#include "core/fail.hpp"
#include "core/hash.hpp"
#include "engine/cuda/node_engine.hpp"
#include "engine/cuda/send_and_arrive.hpp"
#include "kernels/cuda/pack_rows.hpp"
#include "kernels/cuda/quantise_rows.hpp"
#include "kernels/cuda/reduce_rows.hpp"
#include "plan/cuda/choose.hpp"

namespace shunt {

using device::BarrierPart;
using device::Phase;
using device::region_of;

// Ranks make plans in the same order, so all cache the same buffers, whichever plans they still hold.
std::shared_ptr<const PaddedBuffers> NodeEngine::padded_buffers_of(const ExpertMap& map,
                                                                   const PlanOptions& plan_options) {
  constexpr std::size_t kMostKnown = 16;
  const std::uint64_t which = PaddedBuffers::hash_of(map.hash(), plan_options);
  auto known = padded_.find(which);
  if (known == padded_.end()) {
    if (is_capturing())
      fail(ErrorCode::invalid_argument,
           "rank {}: {}: this map is new to the engine for padded rows; plan with it once before it is captured",
           rank(), title("plan"));
    if (has_left_out())
      fail(ErrorCode::unsupported, "rank {}: {}: ranks were left out, so padded plans keep to the maps known before",
           rank(), title("plan"));
    std::shared_ptr<const PaddedBuffers> made = make_padded_buffers(map, plan_options);
    // The new buffers were made in a collective on the host, before which all ranks had waited for their streams.
    std::erase_if(retired_buffers_, [](const auto& buffers) { return buffers.use_count() == 1; });
    if (padded_.size() == kMostKnown) {
      const auto oldest = std::ranges::min_element(padded_, {}, [](const auto& each) { return each.second.last_plan; });
      retired_buffers_.push_back(std::move(oldest->second.buffers));
      padded_.erase(oldest);
    }
    known = padded_.emplace(which, KnownBuffers{std::move(made), 0}).first;
  }
  known->second.last_plan = ++num_padded_plans_;
  return known->second.buffers;
}

std::vector<std::shared_ptr<const PaddedBuffers>> NodeEngine::all_padded_buffers() const {
  std::vector<std::shared_ptr<const PaddedBuffers>> all = retired_buffers_;
  for (const auto& [hash, known] : padded_) all.push_back(known.buffers);
  return all;
}

std::shared_ptr<PaddedBuffers> NodeEngine::make_padded_buffers(const ExpertMap& map, const PlanOptions& plan_options) {
  const std::int64_t max_tokens = plan_options.max_tokens;
  const std::int64_t num_local = map.num_local(rank());
  const std::int64_t num_runs = num_local * num_ranks();
  const std::int64_t num_rows = num_runs * max_tokens;
  const auto num_entries = static_cast<std::size_t>(max_tokens) * Routing::kMaxTopK;
  auto buffers = std::make_shared<PaddedBuffers>();
  buffers->map = tables_of(map);
  buffers->num_ranks = num_ranks();
  buffers->num_local = map.num_local(rank());
  buffers->rows = allocate(options.dtype, num_rows, options.hidden);
  if (has_scales()) {
    buffers->row_scales = allocate(f32, num_rows, checks().num_scales());
    PaddedBuffers::Quantised& quantised = buffers->quantised;
    quantised.x = allocate(fp8_e4m3, max_tokens, options.hidden);
    quantised.scales = allocate(f32, max_tokens, checks().num_scales());
    const std::array pointers{quantised.x.data, quantised.scales.data};
    quantised.pointers = allocate_kept(sizeof(pointers));
    copy_when_idle(quantised.pointers.get(), pointers.data(), sizeof(pointers),
                   "upload the addresses of quantised rows");
  }
  buffers->expert_out = allocate(*options.expert_dtype, num_rows, options.hidden);
  buffers->counts = allocate(f32, num_runs, 1);
  if (plan_options.packed) {
    buffers->packed_rows = allocate(options.dtype, num_rows, options.hidden);
    if (has_scales()) buffers->packed_row_scales = allocate(f32, num_rows, checks().num_scales());
    buffers->packed_counts = allocate(f32, num_runs, 1);
    buffers->begins = allocate_kept(static_cast<std::size_t>(num_runs) * sizeof(std::int32_t));
  }
  buffers->terms = allocate_kept(num_entries * sizeof(device::Term));
  if (map.has_replicas()) buffers->copies = allocate_kept(num_entries * sizeof(std::int32_t));
  for (std::int64_t local = 0; local <= num_local; ++local)
    buffers->offsets.push_back(static_cast<std::int32_t>(local * num_ranks() * max_tokens));
  const std::size_t offsets_bytes = buffers->offsets.size() * sizeof(std::int32_t);
  buffers->offsets_on_device = allocate_kept(offsets_bytes);
  copy_when_idle(buffers->offsets_on_device.get(), buffers->offsets.data(), offsets_bytes,
                 "upload the offsets of experts");

  struct PeerInfo {
    std::uint64_t agreement;
    std::array<std::uint64_t, PaddedBuffers::kNumPlaces> offsets;
  };
  PeerInfo mine{.agreement = PaddedBuffers::hash_of(map.hash(), plan_options), .offsets = {}};
  const auto offset_of = [&](const std::byte* block) { return block ? heap->memory.offset_of(block) : 0; };
  mine.offsets[PaddedBuffers::kRows] = offset_of(buffers->rows.data);
  mine.offsets[PaddedBuffers::kRowScales] = offset_of(buffers->row_scales.data);
  mine.offsets[PaddedBuffers::kCounts] = offset_of(buffers->counts.data);
  mine.offsets[PaddedBuffers::kExpertOut] = offset_of(buffers->expert_out.data);
  mine.offsets[PaddedBuffers::kBegins] = offset_of(buffers->begins.get());
  const auto count = static_cast<std::size_t>(num_ranks());
  std::vector<std::byte*> pointers(PaddedBuffers::kNumPlaces * count);
  // Nothing is allocated after the all-gather: a rank without room may repeat the call while the others wait.
  buffers->peers = allocate_kept(pointers.size() * sizeof(std::byte*));
  const auto all = gather(std::as_bytes(std::span(&mine, 1)));
  for (std::size_t peer = 0; peer < count; ++peer) {
    const auto theirs = gathered<PeerInfo>(all[peer], peer);
    if (theirs.agreement != mine.agreement)
      fail(ErrorCode::mismatch, "{}: ranks {} and {} plan padded rows with different maps or options", title("plan"),
           rank(), peer);
    for (std::size_t place = 0; place < PaddedBuffers::kNumPlaces; ++place)
      pointers[place * count + peer] = heap->memory.base_of(peer) + theirs.offsets[place];
  }
  copy_when_idle(buffers->peers.get(), pointers.data(), pointers.size() * sizeof(std::byte*),
                 "upload the addresses of peers");
  buffers->generation = ++num_padded_sets_;
  return buffers;
}

Tensor NodeEngine::expert_out(const PlanData& plan) const {
  const auto& data = static_cast<const NodePlan&>(plan);
  return data.padded ? data.padded->expert_out : Impl::expert_out(plan);
}

void NodeEngine::check_turn(OpKind wanted, const NodePlan& plan, Stream callers) {
  const std::optional<std::uint64_t> capture = capture_id(callers);
  // A capture that was given up, or has become a graph, leaves nothing behind.
  if (dispatched_ && dispatched_->capture && dispatched_->capture != capture) dispatched_.reset();
  const auto demand = [&](bool holds, const char* what) {
    if (holds) return;
    throw_if_faulty();  // which may be why an operation is called again
    fail(ErrorCode::invalid_argument, "rank {}: {}: padded rows need {}: dispatch and combine take turns", rank(),
         title(to_string(wanted)), what);
  };
  if (wanted == OpKind::dispatch) return demand(!dispatched_, "the combine of the last dispatch before");
  demand(dispatched_.has_value(), "a dispatch before");
  demand(dispatched_->capture == capture, "a dispatch in the same capture before");
  demand(dispatched_->buffers == plan.padded && dispatched_->num_tokens == plan.num_tokens &&
             dispatched_->topk == plan.topk,
         "the plan of the last dispatch, or one like it");
}

Ticket<Rows> NodeEngine::dispatch_padded(const Plan& plan, const ConstTensor& x, Stream callers) {
  const NodePlan& data = data_of(plan);
  const PaddedBuffers& buffers = *data.padded;
  check_turn(OpKind::dispatch, data, callers);
  const device::OnDevice scope(memory().device);
  start_after(callers);
  ConstTensor sent = readable("dispatch", x);
  const std::uint32_t* const stop = &control_.state->fault;
  if (has_scales()) {
    device::launch(device::quantise_tokens(sent, reinterpret_cast<std::byte**>(buffers.quantised.pointers.get()), stop),
                   cuda_stream);
    sent = buffers.quantised.x;
  }
  narrow_experts(data);
  auto* const copies = reinterpret_cast<std::int32_t*>(buffers.copies.get());
  if (copies)
    device::launch_choose({.experts = data.experts,
                           .copies = nullptr,
                           .weights = nullptr,
                           .num_tokens = data.num_tokens,
                           .topk = data.topk,
                           .self = rank().value},
                          *buffers.map, copies, cuda_stream);
  const device::Tag tag{OpKind::dispatch, Phase::end, data.hash};
  device::launch(
      device::SendAndArrive{{.map = copies ? buffers.map->of_copies() : *buffers.map,
                             .x = sent.data,
                             .scales = reinterpret_cast<const float*>(buffers.quantised.scales.data),
                             .experts = copies ? copies : data.experts,
                             .weights = data.weights,
                             .num_tokens = static_cast<std::int32_t>(data.num_tokens),
                             .max_tokens = static_cast<std::int32_t>(data.options.max_tokens),
                             .topk = data.topk,
                             .self = rank().value,
                             .row_bytes = sent.row_bytes(),
                             .num_scales = static_cast<std::int32_t>(buffers.row_scales.cols),
                             .flat = options.reduction == Reduction::flat,
                             .rows = buffers.peers_at(PaddedBuffers::kRows),
                             .row_scales = reinterpret_cast<float* const*>(buffers.peers_at(PaddedBuffers::kRowScales)),
                             .counts = reinterpret_cast<std::int32_t* const*>(buffers.peers_at(PaddedBuffers::kCounts)),
                             .terms = buffers.terms_of_rows(),
                             .stop = stop},
                            control_,
                            record(tag)},
      cuda_stream);
  dispatched_ = {data.padded, data.num_tokens, data.topk, capture_id()};
  const Tensor& arrived = data.options.packed ? buffers.packed_counts : buffers.counts;
  const auto* const counts = reinterpret_cast<const std::int32_t*>(arrived.data);
  return {submit(callers, {x}, Submitted::Half{held(plan), OpKind::dispatch, {}}),
          {.data = data.options.packed ? buffers.packed_rows : buffers.rows,
           .scales = data.options.packed ? buffers.packed_row_scales : buffers.row_scales,
           .source_counts = {counts, static_cast<std::size_t>(buffers.counts.rows)},
           .plan = plan}};
}

std::shared_ptr<Pending> NodeEngine::combine_padded(const Pull& pull) {
  const NodePlan& data = data_of(pull.plan);
  const PaddedBuffers& buffers = *data.padded;
  check_turn(OpKind::combine, data, pull.stream);
  const device::OnDevice scope(memory().device);
  start_after(pull.stream);
  if (pull.rows.data != buffers.expert_out.data) copy_in("combine", pull.rows, buffers.expert_out);
  const device::Tag tag{OpKind::combine, Phase::begin, pull.plan.data()->hash};
  device::launch_barrier(control_, record(tag), cuda_stream, BarrierPart::arrive);
  dispatched_.reset();
  return submit(pull.stream, {pull.rows}, Submitted::Half{held(pull.plan), OpKind::combine, pull.out});
}

void NodeEngine::complete(Submitted& operation, Stream callers) {
  if (!operation.second_half) return;
  if (operation.capture != capture_id())
    fail(ErrorCode::invalid_argument, "rank {}: {}: its ticket must be waited for, or dropped, {}", rank(),
         title(to_string(operation.second_half->kind)),
         operation.capture ? "while the call is captured" : "before the stream is captured");
  const Submitted::Half half = *std::exchange(operation.second_half, std::nullopt);
  const device::OnDevice scope(memory().device);
  const NodePlan& plan = *half.plan;
  const PaddedBuffers& buffers = *plan.padded;
  const std::uint32_t* const stop = &control_.state->fault;
  if (half.kind == OpKind::dispatch) {
    const bool is_packed = plan.options.packed;
    device::launch_barrier(control_, record({half.kind, Phase::end, plan.hash}), cuda_stream, BarrierPart::wait,
                           {.outputs = {region_of(is_packed ? buffers.packed_rows : buffers.rows),
                                        region_of(is_packed ? buffers.packed_row_scales : buffers.row_scales)},
                            .counts = region_of(is_packed ? buffers.packed_counts : buffers.counts)});
    if (is_packed)
      device::launch(device::PackRows{.rows = buffers.rows.data,
                                      .packed_rows = buffers.packed_rows.data,
                                      .scales = reinterpret_cast<const float*>(buffers.row_scales.data),
                                      .packed_scales = reinterpret_cast<float*>(buffers.packed_row_scales.data),
                                      .counts = reinterpret_cast<const std::int32_t*>(buffers.counts.data),
                                      .sources = buffers.peers_at(PaddedBuffers::kRows),
                                      .packed_counts = reinterpret_cast<std::int32_t*>(buffers.packed_counts.data),
                                      .begins = reinterpret_cast<std::int32_t*>(buffers.begins.get()),
                                      .num_local = buffers.num_local,
                                      .num_ranks = buffers.num_ranks,
                                      .max_tokens = static_cast<std::int32_t>(plan.options.max_tokens),
                                      .row_bytes = buffers.rows.row_bytes(),
                                      .num_scales = static_cast<std::int32_t>(buffers.row_scales.cols),
                                      .stop = stop},
                     cuda_stream);
  } else {
    device::launch_barrier(control_, record({half.kind, Phase::begin, plan.hash}), cuda_stream, BarrierPart::wait,
                           {.outputs = {region_of(half.out)}});
    if (plan.options.packed)
      device::launch(
          device::ShiftTerms{.terms = buffers.terms_of_rows(),
                             .num_tokens = plan.num_tokens,
                             .topk = plan.topk,
                             .num_ranks = buffers.num_ranks,
                             .max_tokens = static_cast<std::int32_t>(plan.options.max_tokens),
                             .begins = reinterpret_cast<std::int32_t* const*>(buffers.peers_at(PaddedBuffers::kBegins)),
                             .stop = stop},
          cuda_stream);
    device::launch(device::ReduceRows{.rows = buffers.peers_at(PaddedBuffers::kExpertOut),
                                      .result = half.out.data,
                                      .terms = buffers.terms_of_rows(),
                                      .num_tokens = plan.num_tokens,
                                      .topk = plan.topk,
                                      .hidden = options.hidden,
                                      .row_dtype = *options.expert_dtype,
                                      .wire_dtype = *options.wire_dtype,
                                      .result_dtype = *options.result_dtype,
                                      .weighted = true,
                                      .stop = stop},
                   cuda_stream);
  }
  mark(operation, callers);
}

void NodeEngine::complete_dropped(Submitted& operation) {
  if (operation.second_half && operation.capture != capture_id()) {
    has_lost_half_ = true;
    operation.second_half.reset();
  }
  complete(operation);
}

}  // namespace shunt
