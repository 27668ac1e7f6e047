// What the operations of a device between nodes have in common.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/cuda/cluster/far_route.hpp"
#include "engine/cuda/cluster/lane.hpp"
#include "engine/cuda/cluster/lists.hpp"
#include "engine/cuda/cluster/nccl_network.hpp"
#include "engine/cuda/cluster/traffic.hpp"
#include "engine/shuffle.hpp"
#include "shunt/tensor.hpp"

namespace shunt {

/// A plan of the host, and the lists that kernels read of it.
struct ClusterPlan final : PlanData {
  ClusterPlan(PlanData&& plan, device::SumOrder order) : PlanData(std::move(plan)), lists(*this, order) {}
  [[nodiscard]] PlanArrays device_arrays() const override;

  device::PlanLists lists;
  std::shared_ptr<std::byte> block;  ///< the lists, on the device
};

namespace device {

/// As on hosts, near ranks announce their memory to each other, work, and say when they are done; only the memory is a
/// device's and the work is a kernel's. Nothing waits on the device but NCCL.
class ClusterShuffle : public Shuffle {
 public:
  struct Place {
    std::shared_ptr<Lane> lane;
    std::shared_ptr<const ClusterPlan> plan;
    Lane::Mark start;                         ///< before this, inputs are not complete and outputs may be in use
    std::shared_ptr<NcclNetwork> nccl;        ///< null: far ranks are reached by the world's own network
    std::unique_ptr<NcclNetwork::Turn> turn;  ///< of NCCL's, until it is taken
  };

  ClusterShuffle(const Context& context, const Announcement& announcement, Place place);

  bool is_ready() final;
  void begin(std::span<const Announcement> peers) final;
  Work work() final;
  /// Else the device, and with it whoever waits for the lane, would wait for a lost rank for ever.
  void give_up() noexcept final;

 protected:
  [[nodiscard]] Lane& lane() const { return *place_.lane; }
  [[nodiscard]] const PlanLists& lists() const { return place_.plan->lists; }
  template <class T>
  [[nodiscard]] const T* list(const ListIn<T>& list) const {
    return list.at(place_.plan->block.get());
  }
  /// What rows_by_rank() says, on the device.
  [[nodiscard]] std::byte** table() const { return reinterpret_cast<std::byte**>(table_.get()); }
  /// A near rank's rows at an offset that it announced; null where there are none.
  [[nodiscard]] std::byte* peer_rows(RankId rank, std::uint64_t offset, std::size_t row_bytes) const;
  /// The same, of as many bytes as it announced.
  [[nodiscard]] std::byte* announced(RankId rank, const Announcement& peer, std::uint64_t offset,
                                     std::size_t row_bytes) const;
  void zero_padding(std::byte* rows, std::size_t row_bytes);

  /// Launches what makes this rank's memory ready for its peers, once inputs are complete; false if that is nothing.
  virtual bool prepare() { return false; }
  /// Where kernels find rows.
  [[nodiscard]] virtual std::vector<std::byte*> rows_by_rank(std::span<const Announcement> peers) = 0;
  [[nodiscard]] virtual std::vector<PeerTraffic> traffic() = 0;
  /// Launches what needs no far rank.
  virtual void launch_near() = 0;
  /// Launches what needs all that came from far ranks.
  virtual void launch_last() {}

 private:
  Place place_;
  std::shared_ptr<std::byte> table_;
  std::optional<Lane::Mark> prepared_;
  std::unique_ptr<FarRoute> far_;  // none: nothing travels far, or all has
  bool has_launched_near_ = false;
  std::optional<Lane::Mark> last_;
};

}  // namespace device
}  // namespace shunt
