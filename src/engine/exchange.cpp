#include "engine/exchange.hpp"

#include <cstring>

namespace shunt {
namespace {

class Exchange final : public Operation {
 public:
  Exchange(std::shared_ptr<const Group> group, std::uint64_t engine, const Announcement& announcement,
           std::chrono::milliseconds deadline, Transport& transport, ReadAll read, Block block)
      : Operation(std::move(group), engine, announcement, deadline),
        transport_(transport),
        read_(std::move(read)),
        block_(std::move(block)) {}

  void run(std::span<const Announcement> peers) override {
    std::vector<std::span<const std::byte>> all;
    for (std::size_t rank = 0; rank < peers.size(); ++rank) {
      const auto& peer = peers[rank];
      if (peer.bytes == 0)
        all.emplace_back();
      else
        all.emplace_back(transport_.peer_pointer(group().members[rank], peer.offset, peer.bytes), peer.bytes);
    }
    read_(all);
  }

 private:
  Transport& transport_;
  ReadAll read_;
  Block block_;  // peers may read it for as long as the operation lives
};

}  // namespace

void exchange(const ExchangePlace& place, OpKind kind, std::span<const std::byte> mine, const ReadAll& read) {
  Fabric& fabric = place.fabric;
  Announcement announcement;
  announcement.kind = kind;
  Block block;
  if (!mine.empty()) {
    block = fabric.allocate(mine.size());
    std::memcpy(block.data, mine.data(), mine.size());
    announcement.offset = *fabric.transport().offset_of(block.data, block.bytes);
    announcement.bytes = block.bytes;
  }
  const auto operation = std::make_shared<Exchange>(place.group, place.engine, announcement, place.deadline,
                                                    fabric.transport(), read, block);
  fabric.progress().issue_and_wait(operation, place.next_sequence);
}

}  // namespace shunt
