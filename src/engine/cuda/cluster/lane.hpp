// What operations between nodes ask of a device. Everything that needs a GPU is behind this, so that all else is tested
// without one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "kernels/cuda/copy_bytes.hpp"
#include "kernels/cuda/copy_rows.hpp"
#include "kernels/cuda/dot_rows.hpp"
#include "kernels/cuda/quantise_rows.hpp"
#include "kernels/cuda/reduce_rows.hpp"
#include "kernels/cuda/scale_rows.hpp"
#include "kernels/cuda/zero_padding.hpp"
#include "shunt/ids.hpp"
#include "shunt/stream.hpp"

namespace shunt::device {

/// Which way a buffer's rows go. Each way has buffers of its own: those that wait for a peer's room never keep this
/// rank from making room.
enum class Way : std::uint8_t { out, in };

/// One engine's memory on a device and its work there, which is done in the order in which it is launched. Any thread,
/// several at a time: who issues an operation may launch what prepares it while another thread drives others.
class Lane {
 public:
  /// True once what was marked is done. What is launched after that finds its results.
  using Mark = std::function<bool()>;

  virtual ~Lane() = default;

  /// Device memory that near ranks address.
  [[nodiscard]] virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) = 0;
  /// Where near ranks find [data, data + bytes); nothing if that is not memory of allocate().
  [[nodiscard]] virtual std::optional<std::uint64_t> offset_of(const std::byte* data, std::size_t bytes) const = 0;
  /// The block there is handed to nobody else, ever: near ranks may still use it.
  virtual void keep(std::uint64_t offset) noexcept = 0;
  /// A near rank's memory. The offset comes from that rank and is checked: throws PeerError.
  [[nodiscard]] virtual std::byte* peer_pointer(RankId rank, std::uint64_t offset, std::size_t bytes) const = 0;

  /// Host memory of buffer_bytes() that kernels address; nullptr while all are in use. Given back with its last owner,
  /// maybe later than this object; the engine is woken then.
  [[nodiscard]] virtual std::shared_ptr<std::byte> take_buffer(Way way) = 0;
  [[nodiscard]] virtual std::size_t buffer_bytes() const = 0;

  // `stop` need not be set.
  virtual void launch(CopyBytes copy) = 0;
  virtual void launch(CopyRows copy) = 0;
  virtual void launch(GatherRows gather) = 0;
  virtual void launch(QuantiseRows quantise) = 0;
  virtual void launch(ReduceRows reduce) = 0;
  virtual void launch(ScaleRows scale) = 0;
  virtual void launch(DotRows dot) = 0;
  virtual void launch(ZeroPadding padding) = 0;
  /// Writes pointers into device memory; they are read during the call.
  virtual void write(std::byte** to, std::span<std::byte* const> pointers) = 0;
  /// Copies a buffer to the device; what is launched next may read it there, and nothing later.
  [[nodiscard]] virtual std::byte* land(const std::byte* buffer, std::size_t bytes) = 0;

  /// What launches go to, for others that put work there.
  [[nodiscard]] virtual Stream stream() const = 0;

  /// Marks what has been launched so far. The engine is woken when it is done.
  [[nodiscard]] virtual Mark mark() = 0;
  /// The same of what has been put on a stream of the caller's; null: nothing.
  [[nodiscard]] virtual Mark mark(Stream stream) = 0;

  // The host waits.

  /// For all that was launched.
  virtual void finish() = 0;
  virtual void wait_for(Stream stream) = 0;
  // For the copy alone; one thread at a time.
  virtual void upload(std::byte* to, std::span<const std::byte> from) = 0;
  virtual void download(std::span<std::byte> to, const std::byte* from) = 0;
};

}  // namespace shunt::device
