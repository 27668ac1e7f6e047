#include "shunt/engine.hpp"

#include <algorithm>
#include <cstring>

#include "core/fail.hpp"
#include "core/hash.hpp"
#include "engine/combine.hpp"
#include "engine/combine_backward.hpp"
#include "engine/dispatch.hpp"
#include "engine/engine_impl.hpp"
#include "engine/exchange.hpp"
#include "engine/world_impl.hpp"
#include "plan/planner.hpp"

namespace shunt {
namespace {

/// What forwarders and receivers on other hosts can't derive from counts.
void swap_notes(const ExchangePlace& place, Planner& planner) {
  std::vector<FarParcel> notes;
  for (const Planner::Note& note : planner.notes()) {
    const auto bytes = std::as_bytes(std::span(note.words));
    notes.push_back({note.rank, {bytes.begin(), bytes.end()}});
  }
  std::vector<FarSender> senders;
  for (const RankId rank : planner.note_senders()) senders.push_back({rank, planner.most_note_bytes(rank)});
  const auto received = swap_far(place, OpKind::plan, planner.agreement_hash(), std::move(notes), senders);
  for (const FarParcel& note : received) {
    try {
      planner.accept_note(note.rank, note.bytes);
    } catch (const Error& error) {
      place.fabric.blame({place.group->member(note.rank), error.what()});
    }
  }
}

void accept(Planner& planner, std::span<const std::span<const std::byte>> proposals, const Group& group) {
  try {
    planner.accept(proposals);
  } catch (const PeerError& error) {
    throw PeerError(group.member(error.culprit()), error.what());
  }
}

}  // namespace

Engine::Engine(const World& world, const EngineOptions& options) : impl_(std::make_shared<Impl>(world, options)) {}

const EngineOptions& Engine::options() const { return impl_->options; }

Plan Engine::plan(const Routing& routing, const ExpertMap& map, const PlanOptions& options) {
  Impl& engine = *impl_;
  if (options.layout == Layout::token_unique && engine.options.reduction == Reduction::flat)
    fail(ErrorCode::invalid_argument,
         "rank {}: token_unique sums per rank; reduction = flat needs expert_major or padded", engine.rank());
  engine.check_trace(routing, map);
  const World::Impl& world = *engine.world;
  const ExchangePlace place{*world.fabric, world.group,          world.topology,
                            engine.key,    engine.next_sequence, *engine.options.deadline};
  Planner planner(routing, map, world.topology, engine.rank(), options, engine.shape(), world.group->wiring);
  while (planner.needs_round())
    exchange(place, OpKind::plan, planner.proposal(), {planner.bytes_for_far()},
             [&](std::span<const std::span<const std::byte>> all) { accept(planner, all, *world.group); });
  if (world.group->has_far()) swap_notes(place, planner);
  std::shared_ptr<PlanData> data = planner.finish();
  data->engine = engine.serial;
  // Two plans of one engine may have equal counts and still not be the same.
  data->hash = Hasher().add(data->hash).add(engine.num_plans++).value();
  if (const TraceTarget& trace = engine.options.trace; trace.recorder)
    trace.recorder->record(trace.layer, routing, engine.rank());
  return Plan(std::move(data));
}

Ticket<Rows> Engine::dispatch(const Plan& plan, const ConstTensor& x, const DispatchOptions& options) {
  Impl& engine = *impl_;
  const PlanData& data = engine.check_plan(plan, "dispatch");
  engine.checks().dispatch_input(data.num_tokens, x, options.scales);

  const RowFormat format = engine.row_format(data.options.layout);
  const RowBlock shape = Dispatch::block_of(data, format, data.self);
  Rows rows;
  rows.plan = plan;
  rows.rows = {nullptr, engine.options.dtype, data.num_rows(), engine.options.hidden, nullptr};

  const bool wants_out = is_given(options.out);
  if (wants_out) {
    engine.check_tensor("dispatch", "out", options.out, rows.rows.dtype, rows.rows.rows);
    engine.check_apart("dispatch", x, options.out);
  }
  const bool only_rows =
      format.scales_per_row == 0 && !format.origins && !format.weights && data.options.layout != Layout::padded;
  const bool in_place = wants_out && only_rows && engine.offset_of(options.out.data, shape.bytes()).has_value();
  const Block block =
      in_place ? Block{options.out.data, shape.bytes(), options.out.owner} : engine.allocate(shape.bytes());

  rows.rows.data = wants_out ? options.out.data : block.data;
  rows.rows.owner = wants_out ? options.out.owner : block.owner;
  if (wants_out && !only_rows) {
    // The companions lie in the block even though the rows are copied elsewhere.
    using Owners = std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>;
    rows.rows.owner = std::make_shared<const Owners>(block.owner, options.out.owner);
  }
  const auto num_rows = static_cast<std::size_t>(data.num_rows());
  rows.scales = {shape.scales(block.data, 0), num_rows * format.scales_per_row};
  if (format.origins) rows.origins = {shape.origins(block.data), num_rows};
  if (format.weights) rows.weights = {shape.weights(block.data), num_rows};
  if (data.options.layout == Layout::padded)
    rows.source_counts = {shape.source_counts(block.data),
                          num_rows / static_cast<std::size_t>(data.options.max_tokens)};

  Dispatch::Inputs inputs{x, options.scales, format, block, wants_out && !in_place ? rows.rows : Tensor{}};
  const Announcement announcement{OpKind::dispatch, data.hash, *engine.offset_of(block.data, 0), shape.bytes(), 0};
  return {engine.issue<Dispatch>(plan, announcement, std::move(inputs)), std::move(rows)};
}

Ticket<Tensor> Engine::combine(const Plan& plan, const ConstTensor& expert_out, const CombineOptions& options) {
  return impl_->pull(OpKind::combine, plan, expert_out, options);
}

Ticket<Tensor> Engine::dispatch_backward(const Plan& plan, const ConstTensor& grad_rows,
                                         const CombineOptions& options) {
  return impl_->pull(OpKind::dispatch_backward, plan, grad_rows, options);
}

Ticket<Tensor> Engine::Impl::pull(OpKind kind, const Plan& plan, const ConstTensor& rows,
                                  const CombineOptions& pull_options) {
  const auto name = to_string(kind);
  const PlanData& data = check_plan(plan, name);
  check_tensor(name, kind == OpKind::combine ? "expert_out" : "grad_rows", rows, *options.expert_dtype,
               data.num_rows());
  Tensor out = pull_options.out;
  if (is_given(out)) {
    check_tensor(name, "out", out, *options.result_dtype, data.num_tokens);
    check_apart(name, rows, out);
  } else {
    out = {nullptr, *options.result_dtype, data.num_tokens, options.hidden, nullptr};
    const Block block = allocate(out.bytes());
    out.data = block.data;
    out.owner = block.owner;
  }
  const Block shown = show_to_peers(rows);
  const Announcement announcement{kind, data.hash, *offset_of(shown.data, 0), rows.bytes(), 0};
  Combine::Inputs inputs{
      shown.owner,       options.hidden,          {*options.expert_dtype, *options.wire_dtype, *options.result_dtype},
      options.reduction, kind == OpKind::combine, out};
  return {issue<Combine>(plan, announcement, std::move(inputs)), out};
}

Ticket<CombineGradients> Engine::combine_backward(const Plan& plan, const ConstTensor& grad_out,
                                                  const ConstTensor& expert_out) {
  Impl& engine = *impl_;
  const PlanData& data = engine.check_plan(plan, "combine_backward");
  engine.check_tensor("combine_backward", "grad_out", grad_out, *engine.options.result_dtype, data.num_tokens);
  const bool has_weights = data.options.layout != Layout::token_unique;
  if (has_weights)
    engine.check_tensor("combine_backward", "expert_out", expert_out, *engine.options.expert_dtype, data.num_rows());

  CombineGradients gradients;
  if (has_weights) gradients.weights.resize(static_cast<std::size_t>(data.num_tokens * data.topk));
  gradients.expert_out = engine.expert_rows(data);
  const Block output{gradients.expert_out.data, gradients.expert_out.bytes(), gradients.expert_out.owner};
  const Block shown = has_weights ? engine.show_to_peers(expert_out) : output;

  CombineBackward::Inputs inputs{grad_out, shown.owner, *engine.options.expert_dtype,
                                 output,   has_weights, gradients.weights.data()};
  const Announcement announcement{OpKind::combine_backward, data.hash, *engine.offset_of(output.data, 0), output.bytes,
                                  *engine.offset_of(shown.data, 0)};
  return {engine.issue<CombineBackward>(plan, announcement, std::move(inputs)), std::move(gradients)};
}

Tensor Engine::expert_out(const Plan& plan) const { return impl_->expert_rows(impl_->check_plan(plan, "expert_out")); }

}  // namespace shunt
