// Messages and slices over UCX's active messages. One thread owns the worker; everybody else queues what is to be sent
// and finds what has arrived.
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

#include "transport/hybrid/far_link.hpp"
#include "transport/silence.hpp"
#include "transport/slice_buffers.hpp"
#include "transport/ucx/releases.hpp"
#include "transport/ucx/worker.hpp"

namespace shunt::ucx {

/// What this rank knows of a far one.
struct Contact {
  RankId rank;
  std::vector<std::byte> address;  ///< of its worker
  std::uint64_t session_there;     ///< of messages to it
  std::uint64_t session_here;      ///< of messages from it; without it they are dropped unread
};

struct LinkOptions {
  RankId rank;
  std::int32_t size = 0;
  std::vector<Contact> contacts;
  std::chrono::milliseconds liveness{0};
};

class Link final : public FarLink, private SliceLink {
 public:
  Link(std::unique_ptr<Worker> worker, LinkOptions options, Listener listener);
  /// Collective: returns once this rank and all others have heard each other, and nobody else can connect any more.
  /// Throws Error(deadline) that names who is silent, Error(peer_lost) for who has left, or the world's `fault`.
  void greet_all(std::chrono::milliseconds limit, const std::function<std::optional<Fault>()>& fault);
  /// Sends what is queued, within limits, and closes all connections.
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
  enum class Kind : std::uint8_t { message, read, slice, fault, ping, alive, left, parted, hello };
  struct Header;
  struct Sending;
  struct Receiving;
  struct Peer;

  // SliceLink
  std::optional<OutSlice> open(std::size_t bytes) override;
  void post(RankId peer, OutSlice slice, std::size_t bytes, const SliceTag& tag) override;
  bool poll(InSlice& slice) override;
  void expect(RankId peer, std::int64_t num_slices, std::size_t bytes_each) override;

  static constexpr unsigned kActiveMessage = 0;
  // Messages to one rank that it has not polled before post() says `again`, and how many it polls before it says so.
  static constexpr std::int32_t kMostUnread = 256;
  static constexpr std::int32_t kReadAtATime = kMostUnread / 4;

  // Any thread.
  void queue(RankId peer, std::unique_ptr<Sending> sending);
  std::unique_ptr<Sending> make_sending(RankId peer, Kind kind, std::span<const std::byte> bytes) const;

  // The link's thread.
  void run();
  bool send_queued();
  void send(RankId peer, std::unique_ptr<Sending> sending);
  void note_sent(Sending& sending);
  void part(Peer& peer);
  void sleep();
  void say_farewell();
  void await_partings();
  void close_all();
  void connect(Peer& peer, const Contact& contact);
  ucs_status_t receive(const Header& header, void* data, std::size_t bytes, const ucp_am_recv_param_t& param);
  ucs_status_t receive_slice(const Header& header, void* data, std::size_t bytes, const ucp_am_recv_param_t& param);
  void receive_small(Peer& peer, Kind kind, std::span<const std::byte> bytes);
  void receive_message(Peer& peer, std::span<const std::byte> bytes);
  void receive_fault(Peer& peer, std::span<const std::byte> bytes);
  void answer(Peer& peer);
  void arrive(InSlice slice);
  void lose(RankId peer, ucs_status_t status);
  /// Reports what no honest peer sends; nothing more is heard of this one.
  void accuse(Peer& peer, const std::string& sent);

  static ucs_status_t on_active_message(void* self, const void* header, std::size_t header_bytes, void* data,
                                        std::size_t bytes, const ucp_am_recv_param_t* param);
  static void on_sent(void* request, ucs_status_t status, void* sending);
  static void on_received(void* request, ucs_status_t status, std::size_t bytes, void* receiving);
  static void on_error(void* peer, ucp_ep_h endpoint, ucs_status_t status);

  std::unique_ptr<Worker> worker_;
  LinkOptions options_;
  Listener listener_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; none for near ones
  std::shared_ptr<Releases> releases_;
  SliceBuffers buffers_;

  std::mutex mutex_;  // guards what follows
  std::deque<std::pair<RankId, std::unique_ptr<Sending>>> outgoing_;
  std::deque<RankId> heard_;  // peers with messages, in turn
  std::deque<InSlice> slices_;

  std::atomic<bool> is_stopping_{false};
  std::atomic<bool> has_left_{false};
  std::atomic<bool> is_poisoned_{false};  // a fault is known; what else is on its way is worth nothing
  std::int32_t num_sending_ = 0;          // the link's thread only
  std::thread thread_;
};

}  // namespace shunt::ucx
