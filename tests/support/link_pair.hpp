// Two ranks over the loopback interface: a real link, and a peer that may say whatever it likes.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "transport/far/link.hpp"
#include "transport/far/make_carrier.hpp"

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

std::unique_ptr<far::Carrier> carrier_on_loopback(far::Network network);

/// Rank 0's link, to rank 1.
class HonestEnd {
 public:
  HonestEnd(far::Network network, std::span<const std::byte> address_of_peer, std::chrono::milliseconds liveness);

  [[nodiscard]] far::Link& link() { return *link_; }
  [[nodiscard]] const LinkListener& heard() const { return heard_; }
  [[nodiscard]] std::span<const std::byte> address() const { return address_; }

 private:
  LinkListener heard_;
  std::vector<std::byte> address_;
  std::unique_ptr<far::Link> link_;
};

/// Rank 1 without a link: it knows the session, and may say whatever it likes. One thread at a time.
class RawPeer : private far::Receiver {
 public:
  using Kind = far::Kind;

  explicit RawPeer(far::Network network) : carrier_(carrier_on_loopback(network)) {}
  virtual ~RawPeer() = default;
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  [[nodiscard]] std::vector<std::byte> address() const { return carrier_->address(); }
  void connect(std::span<const std::byte> address);
  /// Ends without a word, as if killed.
  void vanish() { carrier_.reset(); }

  /// Returns once it has left, or the other side has gone.
  void send(Kind kind, std::span<const std::byte> bytes = {});
  void progress() { carrier_->progress(); }
  [[nodiscard]] int num_heard(Kind kind) const { return static_cast<int>(std::ranges::count(heard_, kind)); }
  [[nodiscard]] const std::vector<Kind>& heard() const { return heard_; }

 private:
  bool wants(const far::Header& header, std::size_t bytes) override;
  void receive(const far::Header& header, std::span<const std::byte> bytes, std::shared_ptr<const void> owner) override;
  void note_sent(const far::Packet&) override { ++num_sent_; }
  void lose(RankId, const std::string&) override { is_lost_ = true; }

  bool is_lost_ = false;
  std::int64_t num_sent_ = 0;
  std::vector<Kind> heard_;
  std::unique_ptr<far::Carrier> carrier_;
};

}  // namespace shunt::test
