#include "engine/fabric.hpp"

namespace shunt {

void Fabric::blame(const PeerError& error) const {
  transport_->report(error.code(), error.culprit(), error.what());
  throw error;
}

Block Fabric::allocate(std::size_t bytes) {
  Block block = transport_->allocate(bytes);
  block.owner = std::shared_ptr<const void>(
      block.data, [inner = std::move(block.owner), duty = progress_.duty()](const void*) mutable {
        inner.reset();
        duty->note_release();
      });
  return block;
}

}  // namespace shunt
