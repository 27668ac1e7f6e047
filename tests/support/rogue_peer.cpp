#include "support/rogue_peer.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "engine/world_impl.hpp"
#include "support/eventually.hpp"
#include "support/require.hpp"

namespace shunt::test {

void RoguePeer::await(const std::function<bool()>& condition) {
  require(eventually([&] {
            require(!end_.fault(), "there is no fault yet");
            return condition();
          }),
          "rank 0 goes on");
}

void RoguePeer::send_signal(std::size_t bytes) {
  await([&] { return end_.post(RankId(0), std::as_bytes(std::span(&signal, 1)).first(bytes)) == Post::posted; });
}

void RoguePeer::grant(std::uint64_t num_slices, std::uint64_t bytes_each) {
  signal.offset = num_slices;
  signal.bytes = bytes_each;
  send_signal();
}

void RoguePeer::send_slice(std::size_t bytes, std::uint32_t index, bool is_last) {
  std::optional<OutSlice> slice;
  await([&] { return (slice = end_.slices()->open(bytes)).has_value(); });
  end_.slices()->post(RankId(0), std::move(*slice), bytes, {signal.engine, signal.sequence, index, is_last});
}

SignalRecord RoguePeer::receive_signal() {
  Message message;
  await([&] { return end_.poll(message); });
  SignalRecord record{};
  std::memcpy(&record, message.data.data(), sizeof(record));
  return record;
}

InSlice RoguePeer::await_slice() {
  InSlice slice;
  await([&] { return end_.slices()->poll(slice); });
  return slice;
}

std::string error_against(const std::function<void(World&)>& honest, const std::function<void(RoguePeer&)>& rogue,
                          Environment environment) {
  environment.ring_depth = 4;
  std::string text;
  const auto run = [&](World& world) {
    Transport& end = world.impl()->comm->transport();
    if (world.rank() == RankId(1)) {
      RoguePeer peer(end);
      rogue(peer);
      // It stays until rank 0 has noticed.
      require(eventually([&] { return end.fault().has_value(); }), "rank 0 notices");
      return;
    }
    try {
      honest(world);
      ADD_FAILURE() << "rank 0 noticed nothing";
    } catch (const Error& error) {
      text = error.what();
    }
    const auto fault = end.fault();
    EXPECT_TRUE(fault && fault->code == ErrorCode::mismatch) << text;
    EXPECT_TRUE(fault && fault->culprit == RankId(1)) << text;
  };
  World::spawn(2, run,
               {.kind = WorldKind::islands, .topology = Topology::virtual_nodes(2, 2), .environment = environment});
  return text;
}

}  // namespace shunt::test
