// The protocol that `inproc` and `shm` share: rows, mailboxes, bells and faults in memory that all ranks map.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/local/control.hpp"
#include "transport/local/heartbeat.hpp"
#include "transport/local/pool.hpp"
#include "transport/local/segment.hpp"
#include "transport/transport.hpp"

namespace shunt {

class LocalTransport : public Transport {
 public:
  /// Every member's segment, all at least Control::bytes() large and zero at first.
  using Segments = std::shared_ptr<std::vector<Segment>>;

  /// Segments of ranks that are threads.
  static Segments anonymous_segments(std::int32_t num_ranks);

  /// `members` are the ranks that share these segments, ascending; empty: as many as there are segments, from 0.
  LocalTransport(RankId rank, Segments segments, std::vector<RankId> members = {});
  ~LocalTransport() override;
  /// Finds out whether members that are processes are alive, over the Heartbeat's sockets. Call before the first
  /// operation.
  void watch(std::vector<Descriptor> sockets, std::chrono::milliseconds liveness);

  [[nodiscard]] const std::vector<RankId>& members() const { return members_; }

  [[nodiscard]] RankId rank() const override { return rank_; }
  [[nodiscard]] std::int32_t size() const override { return static_cast<std::int32_t>(members_.size()); }

  [[nodiscard]] HostId host(RankId) const override { return HostId(0); }
  [[nodiscard]] NicId nic(RankId) const override { return NicId(0); }
  [[nodiscard]] SliceLink* slices() override { return nullptr; }

  Block allocate(std::size_t bytes) override;
  [[nodiscard]] std::optional<std::uint64_t> offset_of(const std::byte* data, std::size_t bytes) const override;
  [[nodiscard]] std::byte* peer_pointer(RankId peer, std::uint64_t offset, std::size_t bytes) const override;
  [[nodiscard]] std::size_t committed_bytes() const override { return home_->pool.committed_bytes(); }
  [[nodiscard]] std::size_t live_bytes() const override { return home_->pool.live_bytes(); }
  bool trim() override { return home_->pool.trim(); }

  Post post(RankId peer, std::span<const std::byte> message) override;
  bool poll(Message& message) override;

  [[nodiscard]] std::uint32_t observe() const override { return control(self_).bell.observe(); }
  void sleep(std::uint32_t seen, std::chrono::microseconds limit) override {
    control(self_).bell.sleep(seen, limit, spin_);
  }
  void wake() override { control(self_).bell.ring(); }

  void report(ErrorCode code, RankId culprit, const std::string& text) override;
  [[nodiscard]] std::optional<Fault> fault() const override;
  void suspect(RankId peer) override;
  [[nodiscard]] bool has_left(RankId peer) const override;
  [[nodiscard]] bool is_gone(RankId peer) const override;
  void leave() override;

 protected:
  /// After leave(): nothing is reported any more.
  void stop_watching();
  /// Called with the fault if this rank reports it, on the reporting thread, or at once if there is a fault already.
  /// Empty: none is called from now on.
  void set_fault_listener(std::function<void(const Fault&)> listener);
  /// A member's bell, which keeps the memory that it lies in.
  [[nodiscard]] std::shared_ptr<Bell> bell_of(RankId rank) const { return {home_, &control(place(rank)).bell}; }

 private:
  /// Outlives the transport as long as a block does.
  struct Home {
    Home(Segments all, std::size_t self, std::size_t control_bytes)
        : segments(std::move(all)), pool((*segments)[self], control_bytes) {}
    Segments segments;
    Pool pool;
  };

  /// A rank's place among the members.
  [[nodiscard]] std::size_t place(RankId rank) const;
  [[nodiscard]] std::size_t control_bytes() const { return Control::bytes(members_.size()); }
  [[nodiscard]] const Segment& segment(std::size_t place) const { return (*home_->segments)[place]; }
  [[nodiscard]] Control& control(std::size_t place) const { return *reinterpret_cast<Control*>(segment(place).base()); }
  void ring_all() const;

  RankId rank_;
  std::vector<RankId> members_;
  std::size_t self_;  // this rank's place
  std::chrono::microseconds spin_;
  std::shared_ptr<Home> home_;
  std::function<void(const Fault&)> fault_listener_;
  std::unique_ptr<Heartbeat> heartbeat_;  // none where members are threads
  std::mutex report_mutex_;
  std::size_t next_mailbox_ = 0;  // poll() takes turns, so that a busy peer can't starve the others
};

}  // namespace shunt
