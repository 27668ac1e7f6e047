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

  ClusterShuffle(const Context& context, const Announcement& announcement, Place place);

  bool is_ready() final;
  void begin(std::span<const Announcement> peers) final;
  Work work() final;
  /// Aborts NCCL, whose kernels would otherwise wait for a lost rank forever.
  void give_up() noexcept final;
  void release_after_fault() noexcept final;

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
  void zero_padding(std::byte* rows, std::size_t row_bytes);
  /// Copies rows to where peers can read them; false if that is not necessary.
  bool publish(const ConstTensor& rows, const Tensor& published);

  // Traffic with far ranks.
  PeerTraffic& traffic_with(RankId peer);
  /// Packs rows of x for the flow's tokens.
  [[nodiscard]] Run gather(const OutFlowLists& flow, const ConstTensor& x);
  /// Unpacks rows of `row_bytes` into the segments of tokens [first, first + count).
  void scatter(const SegmentsByToken& segments, std::int64_t first, std::int64_t count, const std::byte* memory,
               std::size_t segment_bytes, std::size_t row_bytes, std::byte* const* out);

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
