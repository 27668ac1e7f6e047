#include "cli/shuffle/staged_system.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "kernels/copy.hpp"
#include "kernels/reduce.hpp"

namespace shunt::cli {
namespace {

std::byte* align(std::vector<std::byte>& memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  return memory.data() + (64 - address % 64) % 64;
}

void reserve(std::vector<std::byte>& memory, std::size_t bytes) {
  if (memory.size() < bytes + 64) memory.resize(bytes + 64);
}

}  // namespace

StagedSystem::StagedSystem(World& world, const ShuffleConfig& config, const Workload& workload, const Tensor& tokens,
                           std::shared_ptr<AllToAll> all_to_all, Store store)
    : config_(config),
      routing_(workload.routing(world.rank().index())),
      rank_(world.rank().index()),
      tokens_(tokens),
      all_to_all_(std::move(all_to_all)),
      store_(store) {}

void StagedSystem::plan() {
  const ExpertMap map = config_.map();
  order_by_expert(map);
  const std::vector<std::int32_t> counts = all_to_all_->all_gather(counts_);
  place_received(map, counts);
}

// A counting sort of the rows by physical expert, which is also by rank.
void StagedSystem::order_by_expert(const ExpertMap& map) {
  counts_.assign(static_cast<std::size_t>(map.num_physical()), 0);
  for (const PhysicalId expert : routing_.copies)
    if (expert.valid()) ++counts_[expert.index()];
  std::vector<std::int32_t> next(counts_.size());
  for (std::size_t expert = 1; expert < next.size(); ++expert) next[expert] = next[expert - 1] + counts_[expert - 1];
  sent_token_.resize(static_cast<std::size_t>(std::accumulate(counts_.begin(), counts_.end(), std::int64_t{0})));
  sent_position_.assign(routing_.copies.size(), -1);
  for (std::size_t entry = 0; entry < routing_.copies.size(); ++entry) {
    if (!routing_.copies[entry].valid()) continue;
    const std::int32_t position = next[routing_.copies[entry].index()]++;
    sent_token_[static_cast<std::size_t>(position)] =
        static_cast<std::int32_t>(entry / static_cast<std::size_t>(config_.topk));
    sent_position_[entry] = position;
  }
}

// Rows arrive by source, then expert; they belong by expert, then source.
void StagedSystem::place_received(const ExpertMap& map, std::span<const std::int32_t> counts) {
  const auto num_ranks = static_cast<std::size_t>(config_.ranks);
  const auto num_experts = static_cast<std::size_t>(map.num_physical());
  const auto first = map.first_physical(RankId(rank_)).index();
  const auto num_local = static_cast<std::size_t>(map.num_local(RankId(rank_)));

  std::vector<std::int32_t> send_counts(num_ranks);
  std::vector<std::int32_t> receive_counts(num_ranks);
  for (std::size_t expert = 0; expert < num_experts; ++expert)
    send_counts[map.rank(PhysicalId(expert)).index()] += counts_[expert];
  std::vector<std::int32_t> slot_of_run(num_ranks * num_local);
  std::int32_t slot = 0;
  for (std::size_t local = 0; local < num_local; ++local) {
    for (std::size_t source = 0; source < num_ranks; ++source) {
      const std::int32_t count = counts[source * num_experts + first + local];
      slot_of_run[source * num_local + local] = slot;
      slot += count;
      receive_counts[source] += count;
    }
  }
  received_slot_.clear();
  for (std::size_t source = 0; source < num_ranks; ++source)
    for (std::size_t local = 0; local < num_local; ++local)
      for (std::int32_t i = 0; i < counts[source * num_experts + first + local]; ++i)
        received_slot_.push_back(slot_of_run[source * num_local + local] + i);

  buffers_ = all_to_all_->prepare(send_counts, receive_counts);
  const std::size_t row_bytes = tokens_.row_bytes();
  reserve(rows_, received_slot_.size() * row_bytes);
  reserve(expert_out_, received_slot_.size() * row_bytes);
  reserve(result_, tokens_.bytes());
}

ConstTensor StagedSystem::dispatch() {
  const std::size_t row_bytes = tokens_.row_bytes();
  for (std::size_t i = 0; i < sent_token_.size(); ++i) {
    std::byte* target = buffers_.send + i * row_bytes;
    copy_row(tokens_.row(sent_token_[i]), row_bytes, std::span(&target, 1), store_);
  }
  flush_streaming();
  all_to_all_->forward();
  for (std::size_t i = 0; i < received_slot_.size(); ++i) {
    std::byte* target = align(rows_) + static_cast<std::size_t>(received_slot_[i]) * row_bytes;
    copy_row(buffers_.receive + i * row_bytes, row_bytes, std::span(&target, 1), store_);
  }
  flush_streaming();
  return borrow(static_cast<const void*>(align(rows_)), tokens_.dtype, static_cast<std::int64_t>(received_slot_.size()),
                config_.hidden);
}

Tensor StagedSystem::expert_out() {
  return borrow(align(expert_out_), tokens_.dtype, static_cast<std::int64_t>(received_slot_.size()), config_.hidden);
}

ConstTensor StagedSystem::combine() {
  const std::size_t row_bytes = tokens_.row_bytes();
  for (std::size_t i = 0; i < received_slot_.size(); ++i) {
    std::byte* target = buffers_.receive + i * row_bytes;
    copy_row(align(expert_out_) + static_cast<std::size_t>(received_slot_[i]) * row_bytes, row_bytes,
             std::span(&target, 1), store_);
  }
  flush_streaming();
  all_to_all_->backward();

  const Tensor result = borrow(align(result_), tokens_.dtype, config_.tokens, config_.hidden);
  const auto topk = static_cast<std::size_t>(config_.topk);
  std::array<Term, Routing::kMaxTopK> terms;
  for (std::size_t token = 0; token < static_cast<std::size_t>(config_.tokens); ++token) {
    std::size_t num_terms = 0;
    for (std::size_t entry = token * topk; entry < (token + 1) * topk; ++entry)
      if (const std::int32_t position = sent_position_[entry]; position >= 0)
        terms[num_terms++] = {buffers_.send + static_cast<std::size_t>(position) * row_bytes, routing_.weights[entry],
                              Closes::nothing};
    if (num_terms > 0) terms[num_terms - 1].closes = Closes::node;
    reduce_row(std::span(terms.data(), num_terms), static_cast<std::size_t>(config_.hidden),
               {tokens_.dtype, tokens_.dtype, tokens_.dtype}, result.row(static_cast<std::int64_t>(token)), store_);
  }
  flush_streaming();
  return result;
}

}  // namespace shunt::cli
