#include "transport/shm/reunion.hpp"

#include <utility>

#include "core/fail.hpp"
#include "transport/net/reunion.hpp"

namespace shunt::shm {
namespace {

std::string seat_name(const std::string& job, std::int32_t rank) {
  return fmt::format("{}/seat/{}", meeting_place(job), rank);
}

class LocalReunion final : public Reunion {
 public:
  explicit LocalReunion(const JoinOptions& options)
      : options_(options),
        seating_{options.rank, net::take_local_seat(seat_name(options.job, options.rank.value)), {}, options.job} {
    for (std::int32_t rank = 0; rank < options.size; ++rank)
      seating_.places.push_back(
          {.address = fmt::format("@{}", seat_name(options.job, rank)), .port = 0, .interface = ""});
  }

  Outcome hold(Transport& old, std::chrono::milliseconds limit) override {
    const net::Meeting meeting = net::meet_survivors_of(old, seating_, limit, {});
    JoinOptions options = options_;
    options.rank = meeting.rank_of(options_.rank);
    options.size = meeting.size();
    options.job = meeting.name();
    Outcome outcome{join_and_keep_seat(options), meeting.former_ranks()};
    net::leave(old, seating_);
    return outcome;
  }

 private:
  JoinOptions options_;
  net::Seating seating_;
};

}  // namespace

Joined join_and_keep_seat(const JoinOptions& options) {
  auto transport = join(options);
  return {std::move(transport), std::make_unique<LocalReunion>(options)};
}

}  // namespace shunt::shm
