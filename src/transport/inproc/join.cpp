#include "transport/inproc/join.hpp"

#include <map>
#include <mutex>

namespace shunt::inproc {

LocalTransport::Segments segments_of(const std::string& world, std::size_t num_ranks) {
  static std::mutex mutex;  // guards what follows
  static std::map<std::string, std::weak_ptr<LocalTransport::Segments::element_type>> worlds;
  const std::lock_guard lock(mutex);
  std::erase_if(worlds, [](const auto& entry) { return entry.second.expired(); });
  auto known = worlds[world].lock();
  if (!known) worlds[world] = known = LocalTransport::anonymous_segments(static_cast<std::int32_t>(num_ranks));
  return known;
}

std::vector<std::shared_ptr<Transport>> join(std::int32_t num_ranks) {
  const auto segments = LocalTransport::anonymous_segments(num_ranks);
  std::vector<std::shared_ptr<Transport>> ends;
  for (std::int32_t rank = 0; rank < num_ranks; ++rank)
    ends.push_back(std::make_shared<LocalTransport>(RankId(rank), segments));
  return ends;
}

}  // namespace shunt::inproc
