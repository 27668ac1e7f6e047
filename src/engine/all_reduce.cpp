#include "engine/all_reduce.hpp"

#include <algorithm>
#include <cstring>

#include "core/fail.hpp"
#include "kernels/copy.hpp"
#include "kernels/reduce.hpp"

namespace shunt {
namespace {

/// Fits into a core's cache with the same piece of a few ranks.
constexpr std::size_t kPieceElements = 8192;
/// Parts begin at a line of the cache, so that owners of neighbouring parts never write to the same one.
constexpr std::size_t kLineElements = 16;

void add_up(std::span<const Term> terms, std::size_t size, std::byte* result) {
  reduce_row(terms, size, {.terms = f32, .wire = f32, .result = f32}, result, Store::cached);
}

Term term(const void* row, bool ends_node) {
  return {static_cast<const std::byte*>(row), 1.0f, ends_node ? Closes::node : Closes::nothing};
}

}  // namespace

AllReduce::AllReduce(Transport& transport, std::shared_ptr<const Group> group, const Topology& topology,
                     std::uint64_t key, std::chrono::milliseconds deadline, const Tensor& tensor, Block block)
    : Operation(std::move(group), key,
                {.kind = OpKind::all_reduce,
                 .plan_hash = tensor.bytes(),
                 .offset = tensor.bytes() > 0 ? *transport.offset_of(block.data, block.bytes) : 0,
                 .bytes = tensor.bytes()},
                deadline),
      transport_(transport),
      topology_(topology),
      tensor_(tensor),
      block_(std::move(block)),
      num_elements_(tensor.bytes() / sizeof(float)) {}

std::vector<RankId> AllReduce::far_partners() const {
  std::vector<RankId> partners;
  for (std::int32_t r = 0; r < topology_.num_ranks(); ++r)
    if (const RankId rank(r); !group().is_near(rank) && (adds_for_us(rank) || is_served(rank)))
      partners.push_back(rank);
  return partners;
}

void AllReduce::begin(std::span<const Announcement> peers) {
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    const bool is_near = group().is_near(RankId(rank)) && tensor_.bytes() > 0;
    tensors_.push_back(is_near ? reinterpret_cast<float*>(transport_.peer_pointer(group().members[rank],
                                                                                  peers[rank].offset, tensor_.bytes()))
                               : nullptr);
  }
  group().for_near_peers([&](RankId rank) { near_.push_back(rank); });
  for (const RankId rank : far_partners()) {
    FarPeer& peer = far_.emplace_back(FarPeer{rank, &channel(rank), adds_for_us(rank), is_served(rank)});
    peer.channel->begin_sending();
    peer.channel->begin_receiving();
  }
}

std::size_t AllReduce::begin_of_part(std::size_t rank) const {
  const std::size_t num_lines = (num_elements_ + kLineElements - 1) / kLineElements;
  return std::min(num_elements_, num_lines * rank / tensors_.size() * kLineElements);
}

std::size_t AllReduce::num_pieces(RankId part) const {
  const std::size_t size = begin_of_part(part.index() + 1) - begin_of_part(part.index());
  return (size + kPieceElements - 1) / kPieceElements;
}

AllReduce::Piece AllReduce::piece(RankId part, std::size_t index) const {
  const std::size_t begin = begin_of_part(part.index()) + index * kPieceElements;
  return {begin, std::min(kPieceElements, begin_of_part(part.index() + 1) - begin)};
}

Work AllReduce::work() {
  bool moved = false;
  for (FarPeer& each : far_) moved |= send_sums(each);
  // Far peers are served between pieces; without any, nothing has to be interrupted.
  constexpr int kPiecesAtOnce = 16;
  for (int i = 0; (far_.empty() || i < kPiecesAtOnce) && add_up_next(); ++i) moved = true;
  for (FarPeer& each : far_) moved |= send_totals(each);
  for (FarPeer& each : far_) moved |= receive_totals(each);
  const bool is_over = next_piece_ == num_pieces(group().self) && std::ranges::all_of(far_, [](const FarPeer& each) {
                         return !each.channel->is_sending() && each.channel->has_ended();
                       });
  return is_over ? Work::finished : progress_of(moved);
}

bool AllReduce::send_sums(FarPeer& to) {
  if (!to.is_served || to.next_sum == num_pieces(to.rank)) return false;
  const auto ranks = topology_.ranks(topology_.node(group().self));
  bool moved = false;
  for (; to.next_sum < num_pieces(to.rank); ++to.next_sum, moved = true) {
    const Piece part = piece(to.rank, to.next_sum);
    std::byte* const segment = to.channel->open_segment(part.size * sizeof(float));
    if (!segment) break;
    std::vector<Term> terms;
    for (const RankId rank : ranks) terms.push_back(term(at(rank, part), rank == ranks.back()));
    add_up(terms, part.size, segment);
    to.channel->commit();
  }
  to.channel->flush();
  return moved;
}

bool AllReduce::add_up_next() {
  if (next_piece_ == num_pieces(group().self)) return false;
  const Piece part = piece(group().self, next_piece_);
  const std::size_t bytes = part.size * sizeof(float);
  std::vector<const std::byte*> sum_of_node(static_cast<std::size_t>(topology_.num_nodes()));
  for (FarPeer& each : far_) {
    if (!each.adds_for_us) continue;
    const std::byte* const sum = each.channel->front(bytes);
    if (!sum) return false;
    sum_of_node[topology_.node(each.rank).index()] = sum;
  }
  std::vector<Term> terms;
  for (std::int32_t n = 0; n < topology_.num_nodes(); ++n) {
    const auto ranks = topology_.ranks(NodeId(n));
    if (const std::byte* const sum = sum_of_node[static_cast<std::size_t>(n)]) {
      terms.push_back(term(sum, true));
    } else {
      for (const RankId rank : ranks) terms.push_back(term(at(rank, part), rank == ranks.back()));
    }
  }
  auto* const total = reinterpret_cast<std::byte*>(at(group().self, part));
  add_up(terms, part.size, total);
  for (const RankId rank : near_) std::memcpy(at(rank, part), total, bytes);
  for (FarPeer& each : far_)
    if (each.adds_for_us) each.channel->pop();
  ++next_piece_;
  return true;
}

bool AllReduce::send_totals(FarPeer& to) {
  if (!to.channel->is_sending() || (to.is_served && to.next_sum < num_pieces(to.rank))) return false;
  const std::size_t wanted = to.adds_for_us ? num_pieces(group().self) : 0;
  bool moved = false;
  for (; to.next_total < std::min(wanted, next_piece_); ++to.next_total, moved = true) {
    const Piece part = piece(group().self, to.next_total);
    std::byte* const segment = to.channel->open_segment(part.size * sizeof(float));
    if (!segment) break;
    std::memcpy(segment, at(group().self, part), part.size * sizeof(float));
    to.channel->commit();
  }
  if (to.next_total == wanted) return to.channel->finish_sending() || moved;
  to.channel->flush();
  return moved;
}

bool AllReduce::receive_totals(FarPeer& from) {
  if (from.channel->has_ended() || (from.adds_for_us && next_piece_ < num_pieces(group().self))) return false;
  const std::size_t expected = from.is_served ? num_pieces(from.rank) : 0;
  bool moved = false;
  for (; from.next_received < expected; ++from.next_received, moved = true) {
    const Piece part = piece(from.rank, from.next_received);
    const std::byte* const total = from.channel->front(part.size * sizeof(float));
    if (!total) return moved;
    for (const RankId rank : topology_.ranks(topology_.node(group().self)))
      std::memcpy(at(rank, part), total, part.size * sizeof(float));
    from.channel->pop();
  }
  return from.channel->finish_receiving() || moved;
}

bool AllReduce::finish() {
  if (tensor_.bytes() > 0 && block_.data != tensor_.data) std::memcpy(tensor_.data, block_.data, tensor_.bytes());
  return true;
}

}  // namespace shunt
