// The sum of a tensor over all ranks, in place.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine/operation.hpp"
#include "shunt/tensor.hpp"
#include "shunt/topology.hpp"
#include "transport/transport.hpp"

namespace shunt {

/// Every rank owns a part of the tensor: it adds up that part of all ranks and writes the sum into its near peers'
/// tensors. A far node's ranks are added up there, by the owner's counterpart, which also writes the sum into its
/// node's tensors. So each part of a tensor is read and written by one near rank only, and no copy is needed.
///
/// The order of additions is that of combine: ranks of a node, then nodes, ascending.
class AllReduce final : public Operation {
 public:
  /// `tensor`: f32 and contiguous. `block`: what peers address; the tensor's own memory, or a copy of it.
  AllReduce(Transport& transport, std::shared_ptr<const Group> group, const Topology& topology, std::uint64_t key,
            std::chrono::milliseconds deadline, const Tensor& tensor, Block block);

  [[nodiscard]] std::vector<RankId> far_partners() const override;
  void begin(std::span<const Announcement> peers) override;
  Work work() override;
  bool finish() override;

 private:
  /// A run of elements that is added up at a time.
  struct Piece {
    std::size_t begin, size;
  };
  /// A counterpart on another machine, which adds up this rank's part there, or whose part this rank adds up here. Sums
  /// of this node precede totals in its channel.
  struct FarPeer {
    RankId rank;
    SliceChannel* channel;
    bool adds_for_us, is_served;
    std::size_t next_sum = 0, next_total = 0, next_received = 0;  // pieces
  };

  [[nodiscard]] bool adds_for_us(RankId peer) const {
    return topology_.counterpart(group().self, topology_.node(peer)) == peer;
  }
  [[nodiscard]] bool is_served(RankId peer) const {
    return topology_.counterpart(peer, topology_.node(group().self)) == group().self;
  }
  [[nodiscard]] std::size_t begin_of_part(std::size_t rank) const;
  [[nodiscard]] std::size_t num_pieces(RankId part) const;
  [[nodiscard]] Piece piece(RankId part, std::size_t index) const;
  [[nodiscard]] float* at(RankId near, const Piece& piece) const { return tensors_[near.index()] + piece.begin; }

  bool send_sums(FarPeer& to);
  bool send_totals(FarPeer& to);
  bool receive_totals(FarPeer& from);
  bool add_up_next();

  Transport& transport_;
  Topology topology_;
  Tensor tensor_;
  Block block_;
  std::size_t num_elements_;
  std::vector<float*> tensors_;  // by rank; null for far ones
  std::vector<RankId> near_;     // other ranks of this machine
  std::vector<FarPeer> far_;
  std::size_t next_piece_ = 0;  // of this rank's part
};

}  // namespace shunt
