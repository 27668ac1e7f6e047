// Packets over TCP, on as many rails as the hosts have network interfaces.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <unordered_map>

#include "transport/far/carrier.hpp"
#include "transport/net/sockets.hpp"
#include "transport/tcp/connection.hpp"
#include "transport/tcp/introduction.hpp"

namespace shunt::tcp {

struct Options {
  /// Interfaces, comma-separated, each of them a rail; empty: one rail, wherever the system's routes lead.
  std::string interfaces;
  /// "first-last" to listen at; empty: any.
  std::string port_range;
  /// What the system holds of a rail's bytes; 0: as much as it likes.
  std::int32_t send_buffer_bytes = 0;
};

/// Where the other one's rails end; an address that it does not know itself is the one that the contact
/// gives. Throws Error(mismatch).
std::vector<net::Endpoint> endpoints_of(const far::Contact& contact);

/// Each pair of ranks has one connection for messages, which slices can't delay, and one per rail for slices. A rail
/// takes the next slice when it has room, so a slow one gets fewer.
class Carrier final : public far::Carrier {
 public:
  /// Listens from now on. Throws as net::open_listener.
  explicit Carrier(const Options& options);
  ~Carrier() override;

  [[nodiscard]] std::vector<std::byte> address() const override;
  void connect(RankId self, std::vector<far::Contact> contacts, far::Receiver& receiver,
               std::shared_ptr<far::Wake> wake) override;
  /// Listening ends by itself, once all have come.
  void refuse_strangers() override {}
  void send(std::unique_ptr<far::Packet> packet) override;
  void forget(RankId peer) override;
  bool progress() override { return handle_events(0); }
  void sleep() override { handle_events(-1); }
  [[nodiscard]] std::int64_t num_leaving() override;
  void close(std::chrono::milliseconds limit) override;

 private:
  struct Channel;
  struct Peer;

  void add_peer(far::Contact contact);
  [[nodiscard]] bool is_initiator(const Channel& channel) const;
  void begin_to_connect(Channel& channel);
  void greet(Channel& channel);
  void hear_greeting(Channel& channel);
  void accept_at(const Descriptor& door);
  void hear_guest(std::list<Introduction>::iterator guest);
  void admit(Introduction& guest);
  void open(Channel& channel);
  void close_doors();

  bool handle_events(int timeout_ms);
  void handle(int fd, std::uint32_t events);
  void advance(Channel& channel, std::uint32_t events);
  void push(Channel& channel);
  void pull(Channel& channel);
  void end(Channel& channel);
  void lose(Peer& peer, std::string why);
  bool bury_lost();
  void hear_last_words(Peer& peer);
  void hang_up(Peer& peer);
  void watch(int fd, std::uint32_t events, bool is_new);
  void unwatch(int fd);

  Options options_;
  std::vector<net::Listener> listeners_;  // one per rail; nobody listens there once all have come
  std::vector<net::Endpoint> endpoints_;
  Descriptor events_;
  RankId self_;
  far::Receiver* receiver_ = nullptr;
  std::shared_ptr<far::Wake> wake_;
  std::map<RankId, std::unique_ptr<Peer>> peers_;
  std::unordered_map<int, Channel*> channels_;  // by descriptor
  std::list<Introduction> guests_;              // who has connected, but not said who it is; the oldest first
  std::size_t num_closed_ = 0;                  // channels that do not stand yet
  bool has_lost_ = false;                       // somebody who is not buried yet
};

}  // namespace shunt::tcp
