// What the operations of a device between nodes have in common.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/cuda/cluster/far_route.hpp"
#include "engine/cuda/cluster/lists.hpp"
#include "engine/shuffle.hpp"
#include "shunt/tensor.hpp"

namespace shunt {

/// A plan in host memory, and the lists that kernels read of it.
struct ClusterPlan final : PlanData {
  ClusterPlan(PlanData&& plan, device::SumOrder order) : PlanData(std::move(plan)), lists(*this, order) {}
  [[nodiscard]] PlanArrays device_arrays() const override;

  device::PlanLists lists;
  std::shared_ptr<std::byte> block;  ///< the lists, on the device
};

namespace device {

/// As in host memory, near ranks announce their memory to each other, work, and signal when they are done; only the
/// memory is a device's and the work is a kernel's. Nothing waits on the device but NCCL.
class ClusterShuffle : public Shuffle {
 public:
  struct Place {
    std::shared_ptr<Lane> lane;
    std::shared_ptr<const ClusterPlan> plan;
    Lane::Mark start;                         ///< before this, inputs are not complete and outputs may be in use
    std::shared_ptr<NcclNetwork> nccl;        ///< null: far ranks are reached by the world's own network
    std::unique_ptr<NcclNetwork::Turn> turn;  ///< for NCCL, until it is taken
  };

  ClusterShuffle(const Context& context, const Announcement& announcement, Place place);

  bool is_ready() final;
  void begin(std::span<const Announcement> peers) final;
  Work work() final;
  /// Else the device, and with it the host that waits for the lane, would wait for a lost rank for ever.
  void give_up() noexcept final;

 protected:
  [[nodiscard]] Lane& lane() const { return *place_.lane; }
  [[nodiscard]] const PlanLists& lists() const { return place_.plan->lists; }
  template <class T>
  [[nodiscard]] const T* list(const ListIn<T>& list) const {
    return list.at(place_.plan->block.get());
  }
  /// What rows_by_rank() returns, on the device; `column` tables of one entry per rank further.
  [[nodiscard]] std::byte** table(std::int32_t column = 0) const {
    return reinterpret_cast<std::byte**>(table_.get()) + column * plan().topology.num_ranks();
  }
  /// Appends every rank's rows at an offset that it announced; null where there are none, or none that kernels reach.
  void append_rows(std::vector<std::byte*>& rows, std::span<const Announcement> peers,
                   std::uint64_t Announcement::*offset, std::size_t row_bytes) const;
  void zero_padding(std::byte* rows, std::size_t row_bytes);
  /// Copies rows to where peers can read them, unless they can read them where they are; false if so.
  bool publish(const ConstTensor& rows, const Tensor& published);

  // What operations exchange with far ranks.
  PeerTraffic& traffic_with(RankId peer);
  /// Packs rows of x for the flow's tokens.
  [[nodiscard]] Run gather(const OutFlowLists& flow, const ConstTensor& x);
  /// Unpacks `row_bytes` for each of the tokens' segments.
  void scatter(const SegmentsByToken& segments, std::int64_t first, std::int64_t count, const std::byte* memory,
               std::size_t segment_bytes, std::size_t row_bytes, std::byte* const* out);

  /// Launches what makes this rank's memory ready for its peers, once inputs are complete; false if that is nothing.
  virtual bool prepare() { return false; }
  /// Where kernels find rows.
  [[nodiscard]] virtual std::vector<std::byte*> rows_by_rank(std::span<const Announcement> peers) = 0;
  /// Sets the runs of traffic_with() each far rank.
  virtual void add_traffic() = 0;
  /// Launches what needs no far rank.
  virtual void launch_near() = 0;
  /// Launches what needs all that came from far ranks.
  virtual void launch_last() {}

 private:
  Place place_;
  std::shared_ptr<std::byte> table_;
  std::optional<Lane::Mark> prepared_;
  std::vector<PeerTraffic> traffic_;  // until it is under way
  std::unique_ptr<FarRoute> far_;     // none: nothing travels far, or all has
  bool has_launched_near_ = false;
  std::optional<Lane::Mark> last_;
};

}  // namespace device
}  // namespace shunt
