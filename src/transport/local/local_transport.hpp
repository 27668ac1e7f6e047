// The protocol that `inproc` and `shm` share: rows, mailboxes, bells and faults in memory that all ranks map.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/local/control.hpp"
#include "transport/local/pool.hpp"
#include "transport/local/segment.hpp"
#include "transport/transport.hpp"

namespace shunt {

/// Finds out whether a silent peer's process is alive. Ranks that are threads need none.
class Liveness {
 public:
  virtual ~Liveness() = default;
  /// As in Transport.
  virtual void suspect(RankId peer) = 0;
  [[nodiscard]] virtual bool is_gone(RankId peer) const = 0;
};

class LocalTransport : public Transport {
 public:
  /// Every rank's segment in rank order, all at least Control::bytes() large and zero at first.
  using Segments = std::shared_ptr<std::vector<Segment>>;

  /// Segments of ranks that are threads.
  static Segments anonymous_segments(std::int32_t num_ranks);

  /// `names` are the ranks' numbers in messages and faults; empty: the same as here.
  LocalTransport(RankId rank, Segments segments, std::vector<RankId> names = {});
  ~LocalTransport() override;
  /// Call before the first operation; the object may report() from its own thread until it is destroyed here.
  void watch_with(std::unique_ptr<Liveness> liveness) { liveness_ = std::move(liveness); }
  /// After leave(): nothing is reported any more.
  void stop_watching() { liveness_.reset(); }

  [[nodiscard]] RankId name(RankId rank) const { return names_.empty() ? rank : names_[rank.index()]; }
  /// Called with the fault if this rank reports it, on the reporting thread, or at once if there is a fault already.
  /// Empty: none is called from now on.
  void set_fault_listener(std::function<void(const Fault&)> listener);

  [[nodiscard]] RankId rank() const override { return rank_; }
  [[nodiscard]] std::int32_t size() const override { return static_cast<std::int32_t>(home_->segments->size()); }

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

  [[nodiscard]] std::uint32_t observe() const override { return control(rank_).bell.observe(); }
  void sleep(std::uint32_t seen, std::chrono::microseconds limit) override {
    control(rank_).bell.sleep(seen, limit, spin_);
  }
  void wake() override { control(rank_).bell.ring(); }

  /// The culprit is one of `names`.
  void report(ErrorCode code, RankId culprit, const std::string& text) override;
  [[nodiscard]] std::optional<Fault> fault() const override;
  void suspect(RankId peer) override;
  [[nodiscard]] bool has_left(RankId peer) const override;
  [[nodiscard]] bool is_gone(RankId peer) const override;
  void leave() override;

 protected:
  /// Every rank's bell; each keeps the memory that it lies in.
  [[nodiscard]] std::vector<std::shared_ptr<Bell>> bells() const;

 private:
  /// Outlives the transport as long as a block does.
  struct Home {
    Home(Segments all, RankId self, std::size_t control_bytes)
        : segments(std::move(all)), pool((*segments)[self.index()], control_bytes) {}
    Segments segments;
    Pool pool;
  };

  [[nodiscard]] const Segment& segment(RankId rank) const { return (*home_->segments)[rank.index()]; }
  [[nodiscard]] Control& control(RankId rank) const { return *reinterpret_cast<Control*>(segment(rank).base()); }
  void ring_all() const;

  RankId rank_;
  std::vector<RankId> names_;
  std::chrono::microseconds spin_;
  std::shared_ptr<Home> home_;
  std::function<void(const Fault&)> fault_listener_;
  std::unique_ptr<Liveness> liveness_;
  std::mutex report_mutex_;
  std::size_t next_mailbox_ = 0;  // poll() takes turns, so that a busy peer can't starve the others
};

}  // namespace shunt
