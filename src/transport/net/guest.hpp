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

  /// By rank. Comes again while rank 0 is not there, or when the connection to it is lost.
  std::vector<Meeting::Guest> meet();

 private:
  std::vector<Meeting::Guest> visit();
  FrameStream shake_hands(Stream stream) const;
  std::vector<Meeting::Guest> attend(FrameStream& frames);
  void expect_more_patience(const std::string& setback) const;

  const MeetingOptions& options_;
  std::span<const std::byte> card_;
  Deadline find_by_;
  std::optional<Deadline> hear_by_;    // once rank 0 was found
  std::optional<Deadline> return_by_;  // once it was lost again
};

}  // namespace shunt::net
