// A rank that sends the engine's signals and slices by hand, and so can break its protocol.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>

#include "engine/operation_table.hpp"
#include "engine/world_impl.hpp"
#include "shunt/error.hpp"
#include "shunt/world.hpp"
#include "support/eventually.hpp"
#include "support/require.hpp"
#include "transport/transport.hpp"

namespace shunt::test {

/// Rank 1's end of a world of two, on two islands. `signal` is the next signal to send.
class RoguePeer {
 public:
  explicit RoguePeer(Transport& end) : end_(end) {}

  SignalRecord signal{.signal = Signal::grant, .kind = OpKind::barrier, .offset = 1, .bytes = 1024};

  /// Sends `signal`, or only its first bytes.
  void send_signal(std::size_t bytes = sizeof(SignalRecord)) {
    await([&] { return end_.post(RankId(0), std::as_bytes(std::span(&signal, 1)).first(bytes)) == Post::posted; });
  }

  void grant(std::uint64_t num_slices, std::uint64_t bytes_each = 1024) {
    signal.offset = num_slices;
    signal.bytes = bytes_each;
    send_signal();
  }

  void send_slice(std::size_t bytes, std::uint32_t index = 0, bool is_last = true) {
    std::optional<OutSlice> slice;
    await([&] { return (slice = end_.slices()->open(bytes)).has_value(); });
    end_.slices()->post(RankId(0), std::move(*slice), bytes, {signal.engine, signal.sequence, index, is_last});
  }

  /// The next signal of rank 0.
  SignalRecord receive_signal() {
    Message message;
    await([&] { return end_.poll(message); });
    SignalRecord record{};
    std::memcpy(&record, message.data.data(), sizeof(record));
    return record;
  }

  InSlice await_slice() {
    InSlice slice;
    await([&] { return end_.slices()->poll(slice); });
    return slice;
  }

 private:
  void await(const std::function<bool()>& condition) {
    require(eventually([&] {
              require(!end_.fault(), "there is no fault yet");
              return condition();
            }),
            "rank 0 goes on");
  }

  Transport& end_;
};

/// Runs an honest rank 0 against a rogue rank 1. Returns the text of rank 0's Error, and fails the test unless the
/// fault is a mismatch of which rank 1 is the culprit.
inline std::string error_against(const std::function<void(World&)>& honest,
                                 const std::function<void(RoguePeer&)>& rogue, Environment environment = {}) {
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
