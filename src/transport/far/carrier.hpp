// What travels between far ranks, and the interface of what moves it; each kind of network implements it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/net/sockets.hpp"
#include "transport/slice_link.hpp"

namespace shunt::far {

using net::Contact;

enum class Kind : std::uint8_t {
  message,
  read,  ///< the receiver has polled a fixed number of messages
  slice,
  fault,
  ping,
  alive,  ///< the answer to a ping
  left,   ///< the last packet but slices, whose number it holds
  left_ack,
};

/// Goes before the bytes of every packet. Nothing in it is trusted before the session is checked.
struct Header {
  std::uint64_t session = 0;
  std::uint64_t engine = 0;
  std::uint32_t sequence = 0;
  std::uint32_t index = 0;
  std::int32_t from = 0;
  Kind kind{};
  std::uint8_t is_last = 0;
  std::uint16_t unused = 0;
};

struct Packet {
  RankId to;
  Header header;
  std::vector<std::byte> small{};
  OutSlice slice{};  // sent instead of `small` where the kind is slice

  [[nodiscard]] std::span<const std::byte> bytes() const {
    return header.kind == Kind::slice ? slice.bytes : std::span<const std::byte>(small);
  }
};

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
  /// Closes all connections and gives back what was being sent and received; within two seconds.
  virtual void close() = 0;
};

}  // namespace shunt::far
