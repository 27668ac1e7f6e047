#include "engine/row_scatter.hpp"

#include <array>
#include <cstring>

#include "kernels/copy.hpp"
#include "shunt/routing.hpp"

namespace shunt {

void RowScatter::write(const std::byte* row, const std::byte* scales, const RowOrigin& origin,
                       std::span<const Target> targets) {
  std::array<std::byte*, Routing::kMaxTopK> slots;
  std::size_t num_slots = 0;
  for (const Target& target : targets) {
    const Receiver& to = receivers_[target.rank.index()];
    if (!to.base) continue;
    const std::size_t slot = target.slot.index();
    slots[num_slots++] = to.block.row(to.base, slot);
    if (format_.scales_per_row > 0)
      std::memcpy(to.block.scales(to.base, slot), scales, format_.scales_per_row * sizeof(float));
    if (format_.origins) to.block.origins(to.base)[slot] = origin;
    if (format_.weights) to.block.weights(to.base)[slot] = target.weight;
  }
  if (num_slots > 0) copy_row(row, format_.row_bytes, std::span(slots.data(), num_slots), store_);
}

}  // namespace shunt
