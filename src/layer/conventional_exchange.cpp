#include "layer/conventional_exchange.hpp"

#include <array>
#include <numeric>

#include "core/fail.hpp"
#include "kernels/copy.hpp"
#include "kernels/reduce.hpp"
#include "plan/request.hpp"
#include "shunt/copy_choice.hpp"

namespace shunt {

void ConventionalExchange::plan(const Routing& routing, const ExpertMap& map) {
  check_routing(routing, {"plan", rank_});
  order_by_expert(routing, map);
  all_counts_ = all_to_all_->all_gather(counts_);
  place_received(map);
}

// A counting sort of the copies by physical expert, and so also by rank.
void ConventionalExchange::order_by_expert(const Routing& routing, const ExpertMap& map) {
  topk_ = static_cast<std::size_t>(routing.topk);
  weights_.resize(routing.experts.size());
  sent_position_.assign(routing.experts.size(), -1);
  counts_.assign(static_cast<std::size_t>(map.num_physical()), 0);
  const CopyChoice choice(map, topology_);
  std::array<PhysicalId, Routing::kMaxTopK> copies;
  for (std::size_t entry = 0; entry < routing.experts.size(); ++entry) {
    weights_[entry] = routing.weight(entry);
    if (entry % topk_ == 0)
      choice.choose(rank_, routing.experts.narrow().subspan(entry, topk_), std::span(copies).first(topk_));
    const PhysicalId copy = copies[entry % topk_];
    if (!copy.valid()) continue;
    sent_position_[entry] = copy.value;  // the expert, until positions are known
    ++counts_[copy.index()];
  }
  std::vector<std::int32_t> next(counts_.size());
  std::exclusive_scan(counts_.begin(), counts_.end(), next.begin(), 0);
  sent_token_.resize(static_cast<std::size_t>(std::accumulate(counts_.begin(), counts_.end(), std::int64_t{0})));
  for (std::size_t entry = 0; entry < sent_position_.size(); ++entry) {
    if (sent_position_[entry] < 0) continue;
    const std::int32_t position = next[static_cast<std::size_t>(sent_position_[entry])]++;
    sent_token_[static_cast<std::size_t>(position)] = static_cast<std::int32_t>(entry / topk_);
    sent_position_[entry] = position;
  }
}

// Rows arrive by source, then expert, and are needed by expert, then source.
void ConventionalExchange::place_received(const ExpertMap& map) {
  const auto num_ranks = static_cast<std::size_t>(map.num_ranks());
  const auto num_physical = static_cast<std::size_t>(map.num_physical());
  const auto first = map.first_physical(rank_).index();
  const auto num_local = static_cast<std::size_t>(map.num_local(rank_));
  const auto count_of = [&](std::size_t source, std::size_t local) {
    return all_counts_[source * num_physical + first + local];
  };

  std::vector<std::int32_t> send_counts(num_ranks);
  std::vector<std::int32_t> receive_counts(num_ranks);
  for (std::size_t physical = 0; physical < num_physical; ++physical)
    send_counts[map.rank(PhysicalId(physical)).index()] += counts_[physical];
  expert_offsets_.assign(num_local + 1, 0);
  expert_counts_.assign(num_local, 0);
  std::vector<std::int32_t> slot_of_run(num_ranks * num_local);
  std::int32_t slot = 0;
  for (std::size_t local = 0; local < num_local; ++local) {
    expert_offsets_[local] = slot;
    for (std::size_t source = 0; source < num_ranks; ++source) {
      slot_of_run[source * num_local + local] = slot;
      slot += count_of(source, local);
      receive_counts[source] += count_of(source, local);
    }
    expert_counts_[local] = slot - expert_offsets_[local];
  }
  expert_offsets_[num_local] = slot;
  received_slot_.clear();
  for (std::size_t source = 0; source < num_ranks; ++source)
    for (std::size_t local = 0; local < num_local; ++local)
      for (std::int32_t i = 0; i < count_of(source, local); ++i)
        received_slot_.push_back(slot_of_run[source * num_local + local] + i);

  buffers_ = all_to_all_->prepare(send_counts, receive_counts);
  rows_.reserve(received_slot_.size() * row_bytes());
  expert_out_.reserve(received_slot_.size() * row_bytes());
  result_.reserve(sent_position_.size() / topk_ * row_bytes());
}

ConstTensor ConventionalExchange::dispatch(const ConstTensor& x) {
  SHUNT_CHECK(static_cast<std::size_t>(x.rows) == sent_position_.size() / topk_ && x.row_bytes() == row_bytes());
  for (std::size_t i = 0; i < sent_token_.size(); ++i) {
    std::byte* target = buffers_.send + i * row_bytes();
    copy_row(x.row(sent_token_[i]), row_bytes(), std::span(&target, 1), options_.store);
  }
  flush_streaming();
  all_to_all_->forward();
  for (std::size_t i = 0; i < received_slot_.size(); ++i) {
    std::byte* target = rows_.data() + static_cast<std::size_t>(received_slot_[i]) * row_bytes();
    copy_row(buffers_.receive + i * row_bytes(), row_bytes(), std::span(&target, 1), options_.store);
  }
  flush_streaming();
  return borrow(static_cast<const void*>(rows_.data()), options_.dtype,
                static_cast<std::int64_t>(received_slot_.size()), options_.hidden);
}

Tensor ConventionalExchange::expert_out() {
  return borrow(expert_out_.data(), options_.dtype, static_cast<std::int64_t>(received_slot_.size()), options_.hidden);
}

ConstTensor ConventionalExchange::combine() {
  for (std::size_t i = 0; i < received_slot_.size(); ++i) {
    std::byte* target = buffers_.receive + i * row_bytes();
    copy_row(expert_out_.data() + static_cast<std::size_t>(received_slot_[i]) * row_bytes(), row_bytes(),
             std::span(&target, 1), options_.store);
  }
  flush_streaming();
  all_to_all_->backward();

  const std::size_t num_tokens = sent_position_.size() / topk_;
  const Tensor result = borrow(result_.data(), options_.dtype, static_cast<std::int64_t>(num_tokens), options_.hidden);
  std::array<Term, Routing::kMaxTopK> terms;
  for (std::size_t token = 0; token < num_tokens; ++token) {
    std::size_t num_terms = 0;
    for (std::size_t entry = token * topk_; entry < (token + 1) * topk_; ++entry)
      if (const std::int32_t position = sent_position_[entry]; position >= 0)
        terms[num_terms++] = {buffers_.send + static_cast<std::size_t>(position) * row_bytes(), weights_[entry],
                              Closes::nothing};
    if (num_terms > 0) terms[num_terms - 1].closes = Closes::node;
    reduce_row(std::span(terms.data(), num_terms), static_cast<std::size_t>(options_.hidden),
               {options_.dtype, options_.dtype, options_.dtype}, result.row(static_cast<std::int64_t>(token)),
               options_.store);
  }
  flush_streaming();
  return result;
}

SentBytes ConventionalExchange::sent_bytes(const ExpertMap& map) const {
  SentBytes sent;
  const auto num_physical = static_cast<std::size_t>(map.num_physical());
  for (std::size_t i = 0; i < all_counts_.size(); ++i) {
    const RankId source(i / num_physical);
    const RankId rank = map.rank(PhysicalId(i % num_physical));
    const auto bytes = static_cast<std::uint64_t>(all_counts_[i]) * row_bytes();
    if (rank != source) sent.between_ranks += bytes;
    if (topology_.node(rank) != topology_.node(source)) sent.between_nodes += bytes;
  }
  return sent;
}

}  // namespace shunt
