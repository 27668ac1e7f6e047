// Another rank's side of the meeting.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/net/frames.hpp"
#include "transport/net/meeting.hpp"

namespace shunt::net {

class Guest {
 public:
  Guest(const MeetingOptions& options, std::span<const std::byte> card);

  /// By rank. Comes again while the host is not there, or when the connection to it is lost.
  std::vector<Meeting::Guest> meet();

 private:
  std::vector<Meeting::Guest> visit();
  FrameStream shake_hands(Stream stream) const;
  void expect_host() const;
  template <class Attempt>
  auto await(Stream& stream, Deadline deadline, Attempt attempt) const -> decltype(attempt());
  Bytes await_bytes(Stream& stream, Deadline deadline, std::size_t num_bytes) const;
  std::vector<Meeting::Guest> attend(FrameStream& frames);
  [[nodiscard]] std::optional<std::vector<Meeting::Guest>> read_roster(const Bytes& roster) const;
  void expect_more_patience(const std::string& setback) const;

  const MeetingOptions& options_;
  std::span<const std::byte> card_;
  Deadline find_by_;
  std::optional<Deadline> hear_by_;    // once the host was found
  std::optional<Deadline> return_by_;  // once it was lost again
};

}  // namespace shunt::net
