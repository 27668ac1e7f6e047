#include "engine/fabric.hpp"

namespace shunt {

Block Fabric::allocate(std::size_t bytes) {
  Block block = transport_->allocate(bytes);
  std::shared_ptr<const void> inner = std::move(block.owner);
  block.owner = std::shared_ptr<const void>(block.data, [inner, fabric = weak_from_this()](const void*) mutable {
    inner.reset();
    if (const auto alive = fabric.lock()) alive->progress().note_release();
  });
  return block;
}

}  // namespace shunt
