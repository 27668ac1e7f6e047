// Messages and slices between far ranks over a carrier. One thread owns the carrier; other threads queue what is to be
// sent and poll what has arrived.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "transport/far/carrier.hpp"
#include "transport/net/bytes.hpp"
#include "transport/ping_timer.hpp"
#include "transport/slice_buffers.hpp"
#include "transport/transport.hpp"

namespace shunt::far {

/// One rank's end. Ranks are ranks of the whole world; only far ones may be given.
class Link final : private SliceLink, private Receiver {
 public:
  /// To the ranks of these contacts. The link wakes `world`, its rank's end, when something can be polled or there is
  /// room again, and reports faults to it; from its own thread, from one that suspects a peer or gives a slice back,
  /// and from this call.
  Link(std::unique_ptr<Carrier> carrier, std::vector<Contact> contacts, std::chrono::milliseconds liveness,
       Transport& world);
  /// Collective: returns once packets have passed between this rank and all others in both directions, and no further
  /// connection is accepted. Throws Error(deadline) that names a rank that is missing, Error(peer_lost) for one that
  /// has left, or the world's fault.
  void connect_all(std::chrono::milliseconds limit);
  /// Sends what is queued, within limits, and closes all connections. Unless connect_all() has succeeded, waits at most
  /// two seconds for peers that connect late, so that they learn of the fault.
  ~Link();

  /// As in Transport. Any thread may post and suspect; one thread at a time polls.
  Post post(RankId peer, std::span<const std::byte> message);
  bool poll(Message& message);
  void suspect(RankId peer);
  [[nodiscard]] bool has_left(RankId peer) const;
  [[nodiscard]] bool is_gone(RankId peer) const;
  [[nodiscard]] SliceLink& slices() { return *this; }

  /// Sends a fault to all far ranks. Any thread.
  void flood(const Fault& fault);
  /// As in Transport, after the world's fault, if there is one. Any thread.
  void leave();

 private:
  struct Peer {
    explicit Peer(const Contact& its_contact) : contact(its_contact) {}

    const Contact& contact;
    // The link's thread only.
    bool has_sent = false;  // a packet
    bool has_violated = false;
    bool is_answering = false;     // an `alive` is on its way
    bool has_acked_leave = false;  // it has received all that was sent before this rank's `left`
    bool is_leave_acked = false;   // the same for its `left`

    std::atomic<bool> is_broken{false};
    std::atomic<bool> is_silent{false};
    std::atomic<bool> has_asked{false};      // its ping has arrived
    std::atomic<bool> awaits_answer{false};  // the thread that resets this sends the answer
    std::atomic<bool> has_answered{false};   // this rank's ping
    std::atomic<bool> has_left{false};       // slices that it sent before may still be on their way
    std::atomic<std::uint64_t> num_slices_to{0};
    std::atomic<std::uint64_t> num_slices_from{0};
    std::atomic<std::uint64_t> num_slices_until_left{0};
    std::atomic<std::int64_t> num_expected{0};  // slices from it that have not arrived
    std::atomic<std::size_t> most_slice_bytes{0};
    std::atomic<std::int32_t> num_unread{0};  // messages to it
    std::int32_t num_polled = 0;              // messages from it, since the last `read`
    std::deque<Message> messages;             // from it; guarded by the link's mutex
    PingTimer ping_timer;

    [[nodiscard]] bool has_all_slices() const { return num_slices_from >= num_slices_until_left; }
  };

  // SliceLink
  std::optional<OutSlice> open(std::size_t bytes) override { return buffers_.open(bytes); }
  void post(RankId peer, OutSlice slice, std::size_t bytes, const SliceTag& tag) override;
  bool poll(InSlice& slice) override;
  void expect(RankId peer, std::int64_t num_slices, std::size_t bytes_each) override;

  // Receiver
  bool wants(const Header& header, std::size_t bytes) override;
  void receive(const Header& header, std::span<const std::byte> bytes, std::shared_ptr<const void> owner) override;
  void on_sent(const Packet& packet) override;
  void on_lost(RankId peer, const std::string& why) override;

  // Messages to one rank that it has not polled before post() returns `again`, and how many it polls before it sends
  // `read`.
  static constexpr std::int32_t kMostUnread = 256;
  static constexpr std::int32_t kReadAtATime = kMostUnread / 4;

  // Any thread.
  void queue(std::unique_ptr<Packet> packet);
  [[nodiscard]] std::unique_ptr<Packet> make_packet(RankId peer, Kind kind, net::Bytes bytes = {}) const;

  // The link's thread.
  void run();
  bool send_queued();
  void ack_leave(Peer& peer);
  void send_rest();
  void await_leave_acks();
  void receive_small(Peer& peer, Kind kind, std::span<const std::byte> bytes);
  void receive_message(Peer& peer, std::span<const std::byte> bytes);
  void receive_left(Peer& peer, std::span<const std::byte> bytes);
  void receive_fault(Peer& peer, std::span<const std::byte> bytes);
  void receive_slice(Peer& peer, InSlice slice);
  void answer(Peer& peer);
  /// Reports what no correct peer sends; later packets of this peer are dropped.
  void report_violation(Peer& peer, const std::string& sent);

  RankId self_;
  std::vector<Contact> contacts_;
  std::chrono::milliseconds liveness_;
  Transport& world_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; none for near ones
  std::shared_ptr<Wake> wake_;
  SliceBuffers buffers_;

  std::mutex mutex_;  // guards what follows
  std::deque<std::unique_ptr<Packet>> outgoing_;
  std::deque<RankId> readable_;  // peers with messages, in turn
  std::deque<InSlice> slices_;

  std::atomic<bool> is_stopping_{false};
  std::atomic<bool> has_left_{false};
  std::atomic<bool> is_connecting_{false};  // connect_all() has begun; pings are not answered before
  std::atomic<bool> is_connected_{false};   // connect_all() has succeeded
  std::unique_ptr<Carrier> carrier_;
  std::thread thread_;
};

}  // namespace shunt::far
