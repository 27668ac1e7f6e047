#include "transport/inproc/join.hpp"

#include "transport/local/local_transport.hpp"

namespace shunt::inproc {

std::vector<std::shared_ptr<Transport>> join(std::int32_t num_ranks) {
  const auto segments = LocalTransport::anonymous_segments(num_ranks);
  std::vector<std::shared_ptr<Transport>> ends;
  for (std::int32_t rank = 0; rank < num_ranks; ++rank)
    ends.push_back(std::make_shared<LocalTransport>(RankId(rank), segments));
  return ends;
}

}  // namespace shunt::inproc
