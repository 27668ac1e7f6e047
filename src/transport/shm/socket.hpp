// Sequenced-packet Unix sockets that pass descriptors.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "shunt/error.hpp"
#include "transport/wait_ready.hpp"

namespace shunt::shm {

/// Both throw Error(system) on failure. The name is abstract.
Descriptor listen_at(const std::string& name);
/// Empty while nobody listens there.
std::optional<Descriptor> connect_to(const std::string& name);
/// A connection that is waiting to be accepted; empty if it was another user's, who is turned away.
std::optional<Descriptor> accept_from(const Descriptor& listener);
std::pair<Descriptor, Descriptor> socket_pair();

/// What travels while ranks meet, with up to two descriptors: who speaks or is spoken of, or why the meeting failed.
struct Parcel {
  std::uint64_t job_hash = 0;
  std::int32_t rank = 0;
  std::int32_t size = 0;
  ErrorCode refusal_code = ErrorCode::internal;
  std::array<char, 492> refusal = {};  ///< empty: no refusal
};

/// False when the other side is gone; throws Error(system) when the machine refuses.
bool send_parcel(const Descriptor& socket, const Parcel& parcel, int first_fd = -1, int second_fd = -1);

struct ReceivedParcel {
  Parcel parcel;
  Descriptor first;
  Descriptor second;
};
/// Empty when the other side is gone, sends something else, or the deadline passes.
std::optional<ReceivedParcel> receive_parcel(const Descriptor& socket, Deadline deadline);

}  // namespace shunt::shm
