// What brings packets to far ranks. Each kind of network has its own.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "transport/far/packet.hpp"
#include "transport/far/wake.hpp"

namespace shunt::far {

/// What this rank knows of a far one.
struct Contact {
  RankId rank;
  std::vector<std::byte> address;  ///< what its carrier says of itself
  std::string known_as;            ///< its address, where its carrier does not say one
  std::uint64_t session_there;     ///< of packets to it
  std::uint64_t session_here;      ///< of packets from it; without it they are dropped unread
};

/// Called from within the carrier's functions.
class Receiver {
 public:
  /// Asked before there is room for the bytes; what is not wanted is dropped.
  virtual bool wants(const Header& header, std::size_t bytes) = 0;
  /// `owner` keeps the bytes of a slice; those of other kinds are gone after the call.
  virtual void receive(const Header& header, std::span<const std::byte> bytes, std::shared_ptr<const void> owner) = 0;
  virtual void note_sent(const Packet& packet) = 0;
  /// There is no connection to the peer any more.
  virtual void lose(RankId peer, const std::string& why) = 0;

 protected:
  ~Receiver() = default;
};

/// One rank's end. One thread at a time may use it, except where a function says otherwise.
class Carrier {
 public:
  /// Hangs up on all without a word.
  virtual ~Carrier() = default;

  /// For the contacts of others.
  [[nodiscard]] virtual std::vector<std::byte> address() const = 0;
  /// Begins to connect to all of them; `wake` ends a sleep. Both have to outlive this object. Throws Error(system).
  virtual void connect(RankId self, std::vector<Contact> contacts, Receiver& receiver, std::shared_ptr<Wake> wake) = 0;
  /// Once all ranks have heard each other: nobody else can connect any more. Any thread.
  virtual void refuse_strangers() = 0;

  /// Never blocks. What is for a peer that was lost is dropped. The first packet arrives when all connections to the
  /// peer stand.
  virtual void send(std::unique_ptr<Packet> packet) = 0;
  /// Hangs up on this one: nothing more is sent to it, or received.
  virtual void forget(RankId peer) = 0;
  /// False where nothing was to do.
  virtual bool progress() = 0;
  /// Until there may be something to do.
  virtual void sleep() = 0;
  /// Packets to peers that are connected which this process still has to keep, and progress() to move.
  [[nodiscard]] virtual std::int64_t num_leaving() = 0;
  /// Closes all connections and gives back what was being sent and received; within the limit.
  virtual void close(std::chrono::milliseconds limit) = 0;
};

}  // namespace shunt::far
