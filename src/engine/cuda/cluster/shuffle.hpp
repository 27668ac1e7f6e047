// The base of operations between devices of several nodes.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/cuda/cluster/far_route.hpp"
#include "engine/cuda/cluster/lists.hpp"
#include "engine/shuffle.hpp"
#include "shunt/tensor.hpp"

namespace shunt {

/// A host plan, and its lists for kernels.
struct ClusterPlan final : PlanData {
  ClusterPlan(PlanData&& plan, device::SumOrder order) : PlanData(std::move(plan)), lists(*this, order) {}
  [[nodiscard]] PlanArrays device_arrays() const override;

  device::PlanLists lists;
  std::shared_ptr<std::byte> block;  ///< the lists, on the device
};

namespace device {

/// Follows the protocol of operations in host memory (announce, work, signal `done`), with device memory and kernels.
/// Nothing waits on the device except NCCL.
class ClusterShuffle : public Shuffle {
 public:
  struct Place {
    std::shared_ptr<Lane> lane;
    std::shared_ptr<const ClusterPlan> plan;
    Lane::Mark start;                         ///< passed once inputs are complete and outputs are free
    std::shared_ptr<NcclNetwork> nccl;        ///< null if the world's own network is used
    std::unique_ptr<NcclNetwork::Turn> turn;  ///< NCCL only; moved into the route
  };

  ClusterShuffle(const Context& context, const Announcement& announcement, Place place)
      : Shuffle(context, announcement), place_(std::move(place)) {
    // Two kinds of rows per rank, the parts of each flow, and one block of this rank.
    const std::size_t entries = 2 * plan().wiring.hosts.size() + lists().out_flows.size() + 1;
    table_ = lane().allocate(entries * sizeof(std::byte*));
  }

  bool is_ready() final {
    if (!prepared_) {
      if (!place_.start()) return false;
      prepared_ = prepare() ? lane().mark() : [] { return true; };
    }
    return (*prepared_)();
  }

  void begin(std::span<const Announcement> peers) final {
    lane().write(table(), rows_by_rank(peers));
    if (!has_flows()) {
      place_.turn.reset();
      return;
    }
    add_traffic();
    far_ = place_.turn ? make_nccl_route(std::move(place_.turn), std::move(traffic_))
                       : make_slice_route(std::move(traffic_));
  }

  Work work() final {
    // Far traffic first, so that the network is busy while near rows move.
    const Work far = far_ ? far_->pump(lane()) : Work::idle;
    bool moved = far == Work::moved;
    if (!std::exchange(has_launched_near_, true)) {
      launch_near();
      moved = true;
    }
    if (!last_ && (!far_ || far_->is_all_launched())) {
      launch_last();
      last_ = lane().mark();
      moved = true;
    }
    if (!last_ || !(*last_)() || (far_ && !far_->finish())) return moved ? Work::moved : far;
    far_.reset();  // near ranks may need long to finish, and other operations need the buffers
    return Work::finished;
  }

  /// Aborts NCCL, whose kernels would otherwise wait for a lost rank forever.
  void give_up() noexcept final {
    if (place_.nccl) place_.nccl->abort();
  }

  void release_after_fault() noexcept final {
    lane().finish_after_error();  // launched kernels still access the caller's tensors
    for (const std::uint64_t offset : {announcement().offset, announcement().second_offset})
      if (offset != 0) lane().keep(offset);  // peers' kernels may still access it
  }

 protected:
  [[nodiscard]] Lane& lane() const { return *place_.lane; }
  [[nodiscard]] std::byte* peer_pointer(RankId rank, std::uint64_t offset, std::size_t bytes) const final {
    return lane().peer_pointer(rank, offset, bytes);
  }
  [[nodiscard]] const PlanLists& lists() const { return place_.plan->lists; }
  template <class T>
  [[nodiscard]] const T* list(const ListIn<T>& list) const {
    return list.at(place_.plan->block.get());
  }
  /// The device copy of rows_by_rank(), from entry column × ranks on.
  [[nodiscard]] std::byte** table(std::int32_t column = 0) const {
    return reinterpret_cast<std::byte**>(table_.get()) + column * plan().topology.num_ranks();
  }

  void zero_padding(std::byte* rows, std::size_t row_bytes) {
    if (plan().options.layout != Layout::expert_major || plan().options.alignment == 1) return;
    lane().launch(ZeroPadding{.rows = rows,
                              .offsets = list(lists().expert_offsets),
                              .counts = list(lists().expert_counts),
                              .num_experts = plan().num_local_experts,
                              .row_bytes = row_bytes,
                              .stop = nullptr});
  }

  /// Copies rows to where peers can read them; false if that is not necessary.
  bool publish(const ConstTensor& rows, const Tensor& published) {
    if (published.data == rows.data) return false;
    lane().launch(CopyBytes{rows.data, published.data, rows.bytes()});
    return true;
  }

  // Traffic with far ranks.

  PeerTraffic& traffic_with(RankId peer) {
    for (PeerTraffic& known : traffic_)
      if (known.peer == peer) return known;
    return traffic_.emplace_back(PeerTraffic{peer, &channel(peer)});
  }

  /// Packs rows of x for the flow's tokens.
  [[nodiscard]] Run gather(const OutFlowLists& flow, const ConstTensor& x) {
    return {flow.tokens.size, x.row_bytes(), [&](std::int64_t first, std::int64_t count, std::byte* memory) {
              lane().launch(GatherRows{x.data, list(flow.tokens) + first, memory, count, x.row_bytes()});
            }};
  }

  /// Unpacks rows of `row_bytes` into the segments of tokens [first, first + count).
  void scatter(const SegmentsByToken& segments, std::int64_t first, std::int64_t count, const std::byte* memory,
               std::size_t segment_bytes, std::size_t row_bytes, std::byte* const* out) {
    lane().launch(CopyRows{.x = before(memory, first, segment_bytes),
                           .out = out,
                           .segments = list(segments.all) + segments.begin_of(first),
                           .num_segments = segments.num_of(first, count),
                           .row_bytes = row_bytes,
                           .stop = nullptr});
  }

  /// Launches the preparation of this rank's memory for its peers, once inputs are complete; false if there is none.
  virtual bool prepare() { return false; }
  /// Addresses for kernels.
  [[nodiscard]] virtual std::vector<std::byte*> rows_by_rank(std::span<const Announcement> peers) = 0;
  /// Sets the runs of traffic_with() each far rank.
  virtual void add_traffic() = 0;
  /// Launches the work among near ranks.
  virtual void launch_near() = 0;
  /// Launches the work that needs everything from far ranks.
  virtual void launch_last() {}

 private:
  Place place_;
  std::shared_ptr<std::byte> table_;
  std::optional<Lane::Mark> prepared_;
  std::vector<PeerTraffic> traffic_;  // moved into far_
  std::unique_ptr<FarRoute> far_;     // null without traffic, and once it is complete
  bool has_launched_near_ = false;
  std::optional<Lane::Mark> last_;
};

}  // namespace device
}  // namespace shunt
