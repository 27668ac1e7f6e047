// What a DeviceDecoder holds.
#pragma once

#include <vector>

#include "engine/cuda/engine_impl.hpp"
#include "kernels/cuda/send_padded.hpp"
#include "shunt/device_decoder.hpp"

namespace shunt {

struct DeviceDecoder::Impl {
  Impl(World& world, const DeviceHeap& heap, const ExpertMap& expert_map, const DeviceEngineOptions& options);
  ~Impl();

  /// Which half of an operation was the last.
  enum class Stage : std::uint8_t { combined, sent, received, told };

  /// Throws Error(invalid_argument) unless `expected` was the last.
  void check_stage(std::string_view operation, Stage expected) const;

  void send(const DeviceRouting& routing, const ConstTensor& x, Stream after, device::MeetingPart part);
  DeviceTicket<Tensor> receive(const DeviceCombineOptions& options, device::MeetingPart part);
  void leave_out(std::span<const RankId> ranks);

  std::shared_ptr<DeviceEngine::Impl> engine;
  std::shared_ptr<const device::MapTables> map;
  std::uint64_t hash;
  Tensor rows;
  Tensor row_scales;  ///< empty unless rows are fp8
  Tensor expert_out;
  std::shared_ptr<std::byte> counts;
  Stage stage = Stage::combined;

 private:
  /// What ranks know of each other.
  enum Place : std::uint8_t { kRows, kRowScales, kCounts, kExpertOut, kRegrouping, kNumPlaces };

  /// Tokens in fp8, before they are sent.
  struct Quantised {
    Tensor x, scales;
    std::shared_ptr<std::byte> pointers;  ///< device: to the two
  };

  void check_options(const ExpertMap& expert_map) const;
  void make_elsewhere();
  void meet_peers(World& world);
  void make_room_to_quantise();
  void check_routing(const DeviceRouting& routing) const;
  void check_input(const DeviceRouting& routing, const ConstTensor& x) const;
  /// Starts to choose; [tokens, topk], device: physical experts.
  [[nodiscard]] const std::int32_t* choose_copies(const DeviceRouting& routing) const;
  [[nodiscard]] device::SendPadded sending(const DeviceRouting& routing, const ConstTensor& x) const;

  /// [ranks], device.
  [[nodiscard]] std::byte* const* peers(Place place) const {
    return reinterpret_cast<std::byte* const*>(peers_.get()) + place * engine->heap->num_ranks;
  }

  Quantised quantised_;
  std::shared_ptr<std::byte> copies_;  // of experts, as chosen; null where none has several
  std::shared_ptr<std::byte> terms_;
  /// [kNumPlaces, ranks] pointers into ranks' memory, null for ranks that are left out. Device memory, so that graphs
  /// see it.
  std::shared_ptr<std::byte> peers_;
  device::Control elsewhere_{};  // where ranks regroup
  std::shared_ptr<std::byte> elsewhere_block_;
  std::shared_ptr<std::byte> elsewhere_own_;
  unsigned long long* furthest_round_ = nullptr;  // device
  std::vector<bool> is_left_out_;
  std::uint64_t num_regroupings_ = 0;

  // Of the last dispatch.
  std::int64_t num_tokens_ = 0;
  std::int32_t topk_ = 0;
};

}  // namespace shunt
