// The interface of what moves packets to far ranks; each kind of network implements it.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "transport/far/packet.hpp"
#include "transport/net/sockets.hpp"

namespace shunt::far {

using net::Contact;

/// Called from within the carrier's functions.
class Receiver {
 public:
  /// Called before memory for the bytes is allocated; false drops them.
  virtual bool wants(const Header& header, std::size_t bytes) = 0;
  /// `owner` keeps the bytes of a slice; those of other kinds are gone after the call.
  virtual void receive(const Header& header, std::span<const std::byte> bytes, std::shared_ptr<const void> owner) = 0;
  virtual void on_sent(const Packet& packet) = 0;
  /// There is no connection to the peer any more.
  virtual void on_lost(RankId peer, const std::string& why) = 0;

 protected:
  ~Receiver() = default;
};

/// One rank's end. One thread at a time may use it, except where a function is marked.
class Carrier {
 public:
  /// Closes all connections at once.
  virtual ~Carrier() = default;

  /// What other ranks put into Contact::address.
  [[nodiscard]] virtual std::vector<std::byte> address() const = 0;
  /// Begins to connect to all of them; `wake` ends a sleep. The receiver has to outlive this object. Throws
  /// Error(system).
  virtual void connect(RankId self, std::vector<Contact> contacts, Receiver& receiver, std::shared_ptr<Wake> wake) = 0;
  /// Accepts no more connections; for when all ranks are connected. Any thread.
  virtual void stop_accepting() = 0;

  /// Never blocks. Packets to a lost peer are dropped. The first packet arrives when all connections to the peer are
  /// open.
  virtual void send(std::unique_ptr<Packet> packet) = 0;
  /// Closes the connections to this peer: nothing more is sent to it, or received.
  virtual void drop(RankId peer) = 0;
  /// False where nothing was to do.
  virtual bool progress() = 0;
  /// Until there may be something to do.
  virtual void sleep() = 0;
  /// Packets to connected peers that the system has not taken yet; progress() moves them.
  [[nodiscard]] virtual std::int64_t num_unsent() = 0;
  /// Closes all connections and gives back what was being sent and received; within the limit.
  virtual void close(std::chrono::milliseconds limit) = 0;
};

}  // namespace shunt::far
