#include "engine/progress.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "engine/world_impl.hpp"
#include "support/require_error.hpp"
#include "transport/local/local_transport.hpp"

namespace shunt::test {
namespace {

/// Rank 0 of two; rank 1 sends the same record for ever.
class ChattyPeer final : public LocalTransport {
 public:
  explicit ChattyPeer(const Segments& segments) : LocalTransport(RankId(0), segments) {}

  bool poll(Message& message) override {
    const SignalRecord record{.engine = 5, .signal = Signal::announce, .kind = OpKind::barrier};
    message.from = RankId(1);
    message.bytes = sizeof(record);
    std::memcpy(message.data.data(), &record, sizeof(record));
    return true;
  }
};

class Alone final : public Operation {
 public:
  Alone()
      : Operation(std::make_shared<Group>(Group{{RankId(0)}, {{HostId(0)}, {NicId(0)}}, RankId(0), 0}), 7, {},
                  std::chrono::minutes(1)) {}
  void begin(std::span<const Announcement>) override {}
};

// The number that writes to a machine's cache at a time; far members don't.
TEST(Group, CountsMembersOfItsHost) {
  Group group{{RankId(0), RankId(1), RankId(2)}, {}, RankId(1), 0};
  for (const std::int32_t host : {0, 1, 1}) group.wiring.add(HostId(host), NicId(0));
  EXPECT_EQ(group.num_near(), 2u);
}

TEST(Progress, GoesOnThoughAPeerNeverPauses) {
  const auto segments = LocalTransport::anonymous_segments(2);
  const LocalTransport other(RankId(1), segments);
  Progress progress(std::make_shared<ChattyPeer>(segments), {.slice_bytes = 64, .depth = 1});
  std::uint32_t next_sequence = 0;
  progress.issue_and_wait(std::make_shared<Alone>(), next_sequence);
}

// Rank 0 waits for its first grant, for room, and for its bytes.
TEST(Progress, NamesAnAwaitedRankOnce) {
  Environment environment;
  environment.deadline = std::chrono::milliseconds(200);
  World::spawn(2,
               [](World& world) {
                 const Transport& end = world.impl()->comm->transport();
                 if (world.rank() == RankId(1)) {
                   while (!end.fault()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                   return;
                 }
                 require_error([&] { world.barrier(); }, ErrorCode::deadline,
                               "pending: barrier #0 waits for rank 1 to finish; rank 0 was in");
               },
               {.kind = WorldKind::islands, .topology = Topology::virtual_nodes(2, 2), .environment = environment});
}

}  // namespace
}  // namespace shunt::test
