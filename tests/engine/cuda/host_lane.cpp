#include "engine/cuda/host_lane.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "engine/cuda/cluster/cluster_engine.hpp"
#include "kernels/dot.hpp"
#include "kernels/fp8.hpp"
#include "kernels/reduce.hpp"
#include "kernels/scale.hpp"
#include "shunt/routing.hpp"

namespace shunt::test {
namespace {

std::shared_ptr<std::byte> host_memory(std::size_t bytes) {
  return {new std::byte[bytes], [](std::byte* freed) { delete[] freed; }};
}

template <class Index>
std::size_t at(Index index, std::size_t bytes) {
  return static_cast<std::size_t>(index) * bytes;
}

void reduce_token(const device::ReduceRows& reduce, std::int64_t token) {
  const auto hidden = static_cast<std::size_t>(reduce.hidden);
  const std::size_t row_bytes = hidden * size_of(reduce.row_dtype);
  std::array<Term, Routing::kMaxTopK> terms;
  std::size_t count = 0;
  for (; count < static_cast<std::size_t>(reduce.topk); ++count) {
    const device::Term& term = reduce.terms[token * reduce.topk + static_cast<std::int64_t>(count)];
    if (term.rank < 0) break;
    terms[count] = {reduce.rows[term.rank] + at(term.slot, row_bytes), reduce.weighted ? term.weight : 1.0f,
                    static_cast<Closes>(term.closes)};
  }
  reduce_row({terms.data(), count}, hidden, {reduce.row_dtype, reduce.wire_dtype, reduce.result_dtype},
             reduce.result + at(token, hidden * size_of(reduce.result_dtype)), Store::cached);
}

float dot_of(const device::DotRows& dots, std::int64_t token, std::int32_t choice) {
  const auto hidden = static_cast<std::size_t>(dots.hidden);
  for (std::int32_t i = 0; i < dots.topk; ++i) {
    const device::Term& term = dots.terms[token * dots.topk + i];
    if (term.rank < 0) break;
    if (term.choice != choice) continue;
    return dot(dots.x + at(token, hidden * size_of(dots.x_dtype)), dots.x_dtype,
               dots.rows[term.rank] + at(term.slot, hidden * size_of(dots.row_dtype)), dots.row_dtype, hidden);
  }
  return 0.0f;
}

}  // namespace

void HostStream::put(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  left_.push_back(std::move(work));
  ++num_put_;
}

std::uint64_t HostStream::num_put() const {
  const std::lock_guard lock(mutex_);
  return num_put_;
}

void HostStream::run_until(std::uint64_t count) {
  const std::lock_guard lock(mutex_);
  for (; num_done_ < count; ++num_done_) {
    left_.front()();
    left_.pop_front();
  }
}

HostLane::HostLane(const World& world, const Buffers& buffers, std::uint64_t seed)
    : transport_(world.impl()->fabric->transport()),
      fabric_(*world.impl()->fabric),
      group_(*world.impl()->group),
      buffers_(buffers),
      out_(host_memory(buffers.bytes * buffers.num_each_way), buffers.bytes, buffers.num_each_way,
           [this] { transport_.wake(); }),
      in_(host_memory(buffers.bytes * buffers.num_each_way), buffers.bytes, buffers.num_each_way,
          [this] { transport_.wake(); }),
      landing_(buffers.bytes),
      dice_(seed) {}

std::shared_ptr<std::byte> HostLane::allocate(std::size_t bytes) {
  const Block block = fabric_.allocate(bytes);
  return {block.data, [owner = block.owner](std::byte*) {}};
}

std::optional<std::uint64_t> HostLane::offset_of(const std::byte* data, std::size_t bytes) const {
  return transport_.offset_of(data, bytes);
}

std::byte* HostLane::peer_pointer(RankId rank, std::uint64_t offset, std::size_t bytes) const {
  return transport_.peer_pointer(group_.member(rank), offset, bytes);
}

void HostLane::put(std::function<bool()> work) {
  const std::lock_guard lock(mutex_);
  launched_.push_back(std::move(work));
  ++num_launched_;
}

bool HostLane::do_next() {
  if (launched_.empty() || !launched_.front()()) return false;
  launched_.pop_front();
  ++num_done_;
  return true;
}

bool HostLane::advance(std::uint64_t count) {
  const std::lock_guard lock(mutex_);
  for (auto steps = dice_() % 4; steps > 0 && do_next(); --steps) {
  }
  if (num_done_ >= count) return true;
  transport_.wake();
  return false;
}

void HostLane::launch(device::CopyBytes copy) {
  put_at_once([copy] {
    for (std::int64_t row = 0; row < copy.num_rows; ++row)
      std::copy_n(copy.from + at(row, copy.from_stride), copy.row_bytes, copy.to + at(row, copy.row_bytes));
  });
}

void HostLane::launch(device::CopyRows copy) {
  put_at_once([copy] {
    for (std::int64_t i = 0; i < copy.num_segments; ++i) {
      const device::Segment& segment = copy.segments[i];
      std::memcpy(copy.out[segment.rank] + at(segment.slot, copy.row_bytes), copy.x + at(segment.token, copy.row_bytes),
                  copy.row_bytes);
    }
  });
}

void HostLane::launch(device::GatherRows gather) {
  put_at_once([gather] {
    for (std::int64_t i = 0; i < gather.num_rows; ++i)
      std::memcpy(gather.out + at(i, gather.row_bytes), gather.x + at(gather.tokens[i], gather.row_bytes),
                  gather.row_bytes);
  });
}

void HostLane::launch(device::QuantiseRows quantise) {
  if (quantise.terms) throw std::logic_error("clusters quantise tokens, not rows");
  put_at_once([quantise] {
    const auto hidden = static_cast<std::size_t>(quantise.hidden);
    for (std::int64_t token = 0; token < quantise.num_tokens; ++token)
      quantise_row(quantise.x + at(token, hidden * size_of(quantise.x_dtype)), quantise.x_dtype, hidden,
                   reinterpret_cast<std::uint8_t*>(quantise.rows[0]) + at(token, hidden),
                   reinterpret_cast<float*>(quantise.row_scales[0]) + at(token, scales_per_row(hidden)));
  });
}

void HostLane::launch(device::ReduceRows reduce) {
  put_at_once([reduce] {
    for (std::int64_t token = 0; token < reduce.num_tokens; ++token) reduce_token(reduce, token);
  });
}

void HostLane::launch(device::ScaleRows scale) {
  put_at_once([scale] {
    const auto hidden = static_cast<std::size_t>(scale.hidden);
    for (std::int64_t i = 0; i < scale.num_segments; ++i) {
      const device::Segment& segment = scale.segments[i];
      scale_row(scale.x + at(segment.token, hidden * size_of(scale.x_dtype)), scale.x_dtype, segment.weight, hidden,
                scale.out[segment.rank] + at(segment.slot, hidden * size_of(scale.out_dtype)), scale.out_dtype,
                Store::cached);
    }
  });
}

void HostLane::launch(device::DotRows dots) {
  put_at_once([dots] {
    for (std::int64_t token = 0; token < dots.num_tokens; ++token)
      for (std::int32_t choice = 0; choice < dots.topk; ++choice)
        dots.result[token * dots.topk + choice] = dot_of(dots, token, choice);
  });
}

void HostLane::launch(device::ZeroPadding padding) {
  put_at_once([padding] {
    for (std::int32_t expert = 0; expert < padding.num_experts; ++expert) {
      std::byte* const begin = padding.rows + at(padding.offsets[expert] + padding.counts[expert], padding.row_bytes);
      std::byte* const end = padding.rows + at(padding.offsets[expert + 1], padding.row_bytes);
      std::fill(begin, end, std::byte{0});
    }
  });
}

void HostLane::write(std::byte** to, std::span<std::byte* const> pointers) {
  put_at_once([to, copy = std::vector(pointers.begin(), pointers.end())] { std::ranges::copy(copy, to); });
}

std::byte* HostLane::land(const std::byte* buffer, std::size_t bytes) {
  launch(device::CopyBytes{buffer, landing_.data(), bytes});
  return landing_.data();
}

device::Lane::Mark HostLane::mark() {
  const std::lock_guard lock(mutex_);
  return [this, count = num_launched_] { return advance(count); };
}

device::Lane::Mark HostLane::mark(Stream stream) {
  if (!stream) return [] { return true; };
  const std::lock_guard lock(mutex_);
  HostStream& marked = HostStream::of(stream);
  const auto polls = std::make_shared<std::uint64_t>(marked.pace() == HostStream::Pace::late ? dice_() % 10 : 0);
  return [this, polls, &marked, count = marked.num_put()] {
    if (*polls == 0) {
      marked.run_until(count);
      return true;
    }
    --*polls;
    transport_.wake();
    return false;
  };
}

void HostLane::finish() {
  std::unique_lock lock(mutex_);
  for (const std::uint64_t count = num_launched_; num_done_ < count;) {
    if (do_next()) continue;
    lock.unlock();  // others may launch meanwhile, as on a device
    std::this_thread::yield();
    lock.lock();
  }
}

bool HostLane::is_idle() const {
  const std::lock_guard lock(mutex_);
  return launched_.empty();
}

void HostLane::upload(std::byte* to, std::span<const std::byte> from) { std::ranges::copy(from, to); }

void HostLane::download(std::span<std::byte> to, const std::byte* from) { std::copy_n(from, to.size(), to.data()); }

Engine engine_on_host(World& world, const EngineOptions& options, std::shared_ptr<HostLane> lane,
                      std::shared_ptr<device::NcclNetwork> nccl) {
  EngineOptions on_device = options;
  on_device.device = DeviceOptions{};
  on_device.companions = {};
  return Engine(std::make_shared<ClusterEngine>(world, on_device, Memory::host(), std::move(lane), std::move(nccl)));
}

}  // namespace shunt::test
