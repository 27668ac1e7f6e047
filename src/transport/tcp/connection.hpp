// One TCP connection between two ranks that have recognised each other.
#pragma once

#include <memory>
#include <string>

#include "transport/far/carrier.hpp"
#include "transport/net/sockets.hpp"
#include "transport/wait_ready.hpp"

namespace shunt::tcp {

using net::Progress;

/// Never waits. Carries one packet at a time in either direction.
class Connection {
 public:
  /// Whatever comes has to bear this session and this rank.
  Connection(Descriptor socket, std::uint64_t session, RankId peer)
      : socket_(std::move(socket)), session_(session), peer_(peer) {}

  [[nodiscard]] int fd() const { return socket_.get(); }
  /// Once something has said `lost`.
  [[nodiscard]] const std::string& why_lost() const { return why_lost_; }

  [[nodiscard]] bool is_sending() const { return packet_ != nullptr; }
  void begin(std::unique_ptr<far::Packet> packet);
  /// `done`: the system has all of it.
  Progress push();
  std::unique_ptr<far::Packet> finish() { return std::move(packet_); }

  /// `done`: one packet has come, and was received or dropped. `ended`: the peer has hung up after a whole one.
  Progress pull(far::Receiver& receiver);

 private:
  struct Frame {
    far::Header header;
    std::uint64_t bytes = 0;
  };

  /// `num_received`: of the bytes, so far.
  Progress fill(std::span<std::byte> bytes, std::size_t& num_received);
  Progress skip(std::size_t bytes, std::size_t& num_received);
  Progress lose(std::string why);

  Descriptor socket_;
  std::uint64_t session_;
  RankId peer_;
  std::string why_lost_;

  std::unique_ptr<far::Packet> packet_;
  Frame sent_frame_;
  std::size_t num_sent_ = 0;  // of frame and bytes together

  Frame frame_;
  std::size_t num_frame_received_ = 0;
  std::size_t num_body_received_ = 0;
  std::shared_ptr<std::byte[]> body_;  // none: it is dropped
};

}  // namespace shunt::tcp
