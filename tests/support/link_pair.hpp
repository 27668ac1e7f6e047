// Two ranks over the loopback interface: a real link, and a peer that may say whatever it likes.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "transport/ucx/link.hpp"

namespace shunt::test {

/// Hears what a link tells its transport.
class LinkListener {
 public:
  [[nodiscard]] FarLink::Listener listener();
  [[nodiscard]] std::optional<Fault> fault() const;

 private:
  mutable std::mutex mutex_;
  std::optional<Fault> fault_;  // the first
};

/// Rank 0's link, to rank 1.
class HonestEnd {
 public:
  explicit HonestEnd(std::span<const std::byte> address_of_peer, std::chrono::milliseconds liveness);

  [[nodiscard]] ucx::Link& link() { return *link_; }
  [[nodiscard]] const LinkListener& heard() const { return heard_; }
  [[nodiscard]] std::span<const std::byte> address() const { return address_; }

 private:
  LinkListener heard_;
  std::vector<std::byte> address_;
  std::unique_ptr<ucx::Link> link_;
};

/// Rank 1 without a link: it knows the session, and how the wire looks. One thread at a time.
class RawPeer {
 public:
  enum class Kind : std::uint8_t { message, read, slice, fault, ping, alive, left, parted, hello };

  RawPeer();
  ~RawPeer();
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  [[nodiscard]] std::vector<std::byte> address() const { return worker_->address(); }
  /// Returns once UCX has connected both ways: UCX 1.13 may abort a process whose peer dies before.
  void connect(std::span<const std::byte> address);
  /// Ends without a word, as if killed.
  void vanish();

  /// Returns once it has left.
  void send(Kind kind, std::span<const std::byte> bytes = {});
  void progress() { ucp_worker_progress(worker_->get()); }
  [[nodiscard]] int num_heard(Kind kind) const { return num_heard_[static_cast<std::size_t>(kind)]; }

 private:
  void await(ucs_status_ptr_t request);
  static ucs_status_t on_message(void* self, const void* header, std::size_t header_bytes, void* data,
                                 std::size_t bytes, const ucp_am_recv_param_t* param);

  std::unique_ptr<ucx::Worker> worker_;
  std::array<ucp_ep_h, 2> endpoints_{};  // as many as a link has; it speaks through the first
  std::array<int, 9> num_heard_{};
};

}  // namespace shunt::test
