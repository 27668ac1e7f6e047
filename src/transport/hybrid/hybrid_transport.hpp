// A world of several machines: shared memory inside a machine, a network between machines.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "core/wiring.hpp"
#include "transport/far/link.hpp"
#include "transport/local/local_transport.hpp"

namespace shunt {

class HybridTransport final : public Transport {
 public:
  /// `near` joins the ranks of this rank's machine in ascending order, and names them as this world does. `options` has
  /// the contacts of all far ranks.
  HybridTransport(Wiring wiring, std::shared_ptr<LocalTransport> near, std::unique_ptr<far::Carrier> carrier,
                  far::LinkOptions options);
  /// As far::Link::connect_all. Call before the first operation.
  void connect_all(std::chrono::milliseconds limit) {
    far_->connect_all(limit, [this] { return near_->fault(); });
  }
  ~HybridTransport() override;

  [[nodiscard]] RankId rank() const override { return rank_; }
  [[nodiscard]] std::int32_t size() const override { return static_cast<std::int32_t>(wiring_.hosts.size()); }
  [[nodiscard]] HostId host(RankId rank) const override { return wiring_.hosts[rank.index()]; }
  [[nodiscard]] NicId nic(RankId rank) const override { return wiring_.nics[rank.index()]; }
  [[nodiscard]] SliceLink* slices() override { return &far_->slices(); }

  Block allocate(std::size_t bytes) override { return near_->allocate(bytes); }
  [[nodiscard]] std::optional<std::uint64_t> offset_of(const std::byte* data, std::size_t bytes) const override {
    return near_->offset_of(data, bytes);
  }
  [[nodiscard]] std::byte* peer_pointer(RankId peer, std::uint64_t offset, std::size_t bytes) const override {
    return near_->peer_pointer(local(peer), offset, bytes);
  }
  [[nodiscard]] std::size_t committed_bytes() const override { return near_->committed_bytes(); }
  [[nodiscard]] std::size_t live_bytes() const override { return near_->live_bytes(); }
  bool trim() override { return near_->trim(); }

  Post post(RankId peer, std::span<const std::byte> message) override;
  bool poll(Message& message) override;

  [[nodiscard]] std::uint32_t observe() const override { return near_->observe(); }
  void sleep(std::uint32_t seen, std::chrono::microseconds limit) override { near_->sleep(seen, limit); }
  void wake() override { near_->wake(); }

  void report(ErrorCode code, RankId culprit, const std::string& text) override { near_->report(code, culprit, text); }
  [[nodiscard]] std::optional<Fault> fault() const override { return near_->fault(); }
  void suspect(RankId peer) override;
  [[nodiscard]] bool has_left(RankId peer) const override;
  [[nodiscard]] bool is_gone(RankId peer) const override;
  void leave() override;

 private:
  [[nodiscard]] bool is_near(RankId peer) const { return wiring_.are_near(peer, rank_); }
  /// A near rank's number in `near_`.
  [[nodiscard]] RankId local(RankId peer) const { return locals_[peer.index()]; }

  RankId rank_;
  Wiring wiring_;
  std::vector<RankId> locals_;   // by rank; none for far ones
  std::vector<RankId> members_;  // by local rank
  std::shared_ptr<LocalTransport> near_;
  std::optional<far::Link> far_;  // after near_: its thread ends first
  bool poll_far_next_ = false;
  std::atomic<bool> has_left_{false};
};

}  // namespace shunt
