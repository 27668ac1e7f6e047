// Messages and slices between far ranks, whatever carries them. One thread owns the carrier; everybody else queues what
// is to be sent and finds what has arrived.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "transport/far/carrier.hpp"
#include "transport/hybrid/far_link.hpp"
#include "transport/ping_timer.hpp"
#include "transport/slice_buffers.hpp"

namespace shunt::far {

struct LinkOptions {
  RankId rank;
  std::int32_t size = 0;
  std::vector<Contact> contacts;
  std::chrono::milliseconds liveness{0};
};

class Link final : public FarLink, private SliceLink, private Receiver {
 public:
  Link(std::unique_ptr<Carrier> carrier, LinkOptions options, Listener listener);
  /// Collective: returns once this rank and all others have heard each other, and nobody else can connect any more.
  /// Throws Error(deadline) that names who is silent, Error(peer_lost) for who has left, or the world's `fault`.
  void greet_all(std::chrono::milliseconds limit, const std::function<std::optional<Fault>()>& fault);
  /// Sends what is queued, within limits, and closes all connections. Where greeting has failed or was left out,
  /// whoever comes late is waited for too, two seconds at most, to hear of the fault.
  ~Link() override;

  Post post(RankId peer, std::span<const std::byte> message) override;
  bool poll(Message& message) override;
  void suspect(RankId peer) override;
  [[nodiscard]] bool has_left(RankId peer) const override;
  [[nodiscard]] bool is_gone(RankId peer) const override;
  [[nodiscard]] SliceLink& slices() override { return *this; }
  void flood(const Fault& fault) override;
  void leave() override;

 private:
  struct Peer;

  // SliceLink
  std::optional<OutSlice> open(std::size_t bytes) override;
  void post(RankId peer, OutSlice slice, std::size_t bytes, const SliceTag& tag) override;
  bool poll(InSlice& slice) override;
  void expect(RankId peer, std::int64_t num_slices, std::size_t bytes_each) override;

  // Receiver
  bool wants(const Header& header, std::size_t bytes) override;
  void receive(const Header& header, std::span<const std::byte> bytes, std::shared_ptr<const void> owner) override;
  void note_sent(const Packet& packet) override;
  void lose(RankId peer, const std::string& why) override;

  // Messages to one rank that it has not polled before post() says `again`, and how many it polls before it says so.
  static constexpr std::int32_t kMostUnread = 256;
  static constexpr std::int32_t kReadAtATime = kMostUnread / 4;

  // Any thread.
  void queue(std::unique_ptr<Packet> packet);
  [[nodiscard]] std::unique_ptr<Packet> make_packet(RankId peer, Kind kind, std::span<const std::byte> bytes) const;

  // The link's thread.
  void run();
  bool send_queued();
  void part(Peer& peer);
  void say_farewell();
  void await_partings();
  void receive_small(Peer& peer, Kind kind, std::span<const std::byte> bytes);
  void receive_message(Peer& peer, std::span<const std::byte> bytes);
  void receive_fault(Peer& peer, std::span<const std::byte> bytes);
  void receive_slice(Peer& peer, InSlice slice);
  void answer(Peer& peer);
  /// Reports what no honest peer sends; nothing more is heard of this one.
  void accuse(Peer& peer, const std::string& sent);

  LinkOptions options_;
  Listener listener_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; none for near ones
  std::shared_ptr<Wake> wake_;
  SliceBuffers buffers_;

  std::mutex mutex_;  // guards what follows
  std::deque<std::unique_ptr<Packet>> outgoing_;
  std::deque<RankId> heard_;  // peers with messages, in turn
  std::deque<InSlice> slices_;

  std::atomic<bool> is_stopping_{false};
  std::atomic<bool> has_left_{false};
  std::atomic<bool> is_greeting_{false};  // before, nobody is told that this rank has heard it
  std::atomic<bool> has_greeted_{false};  // and was greeted by all
  std::atomic<bool> is_poisoned_{false};  // a fault is known; what else is on its way is worth nothing
  std::unique_ptr<Carrier> carrier_;
  std::thread thread_;
};

}  // namespace shunt::far
