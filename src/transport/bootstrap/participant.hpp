// A rank's side of a rendezvous that another rank coordinates.
#pragma once

#include "transport/bootstrap/connection.hpp"
#include "transport/bootstrap/rendezvous.hpp"

namespace shunt::bootstrap {

class Participant final : public Side {
 public:
  explicit Participant(const RendezvousOptions& options);

  /// Connects again while the coordinator is not there, or when the connection is lost.
  std::vector<Contribution> exchange(std::span<const std::byte> mine, std::chrono::milliseconds limit) override;
  [[nodiscard]] std::string address() const override { return address_; }

 private:
  void connect();
  FrameConnection shake_hands(Connection connection) const;
  std::vector<Contribution> attempt(std::span<const std::byte> mine);
  void expect_coordinator() const;
  void expect_more_patience(const std::string& setback) const;
  template <class Attempt>
  auto await(Connection& connection, Deadline deadline, Attempt attempt) const -> decltype(attempt());
  net::Bytes await_bytes(Connection& connection, Deadline deadline, std::size_t num_bytes) const;
  [[nodiscard]] std::optional<std::vector<Contribution>> read_result(const net::Bytes& result) const;

  RendezvousOptions options_;
  std::optional<FrameConnection> frames_;
  std::string address_;
  std::uint16_t num_attempts_ = 0;
  std::uint32_t round_ = 0;
  std::chrono::milliseconds limit_{0};  // of this round
  Deadline find_by_;
  std::optional<Deadline> hear_by_;    // once the coordinator was found
  std::optional<Deadline> return_by_;  // once it was lost again
};

}  // namespace shunt::bootstrap
