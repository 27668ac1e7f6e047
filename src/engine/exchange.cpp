#include "engine/exchange.hpp"

#include <cstring>

namespace shunt {
namespace {

class Exchange final : public Operation {
 public:
  Exchange(std::shared_ptr<const Group> group, std::uint64_t engine, const Announcement& announcement,
           std::chrono::milliseconds deadline, Transport& transport, const ReadAll& read)
      : Operation(std::move(group), engine, announcement, deadline), transport_(transport), read_(read) {}

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
  const ReadAll& read_;
};

}  // namespace

void exchange(Fabric& fabric, const std::shared_ptr<const Group>& group, std::uint64_t engine,
              std::uint32_t& next_sequence, std::chrono::milliseconds deadline, std::span<const std::byte> mine,
              const ReadAll& read) {
  Announcement announcement;
  Block block;
  if (!mine.empty()) {
    block = fabric.allocate(mine.size());
    std::memcpy(block.data, mine.data(), mine.size());
    announcement.offset = *fabric.transport().offset_of(block.data, block.bytes);
    announcement.bytes = block.bytes;
  }
  const auto operation = std::make_shared<Exchange>(group, engine, announcement, deadline, fabric.transport(), read);
  fabric.progress().issue(operation, next_sequence);
  fabric.progress().wait(*operation);
}

}  // namespace shunt
