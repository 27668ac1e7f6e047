#include "shunt/device_decoder.hpp"

#include "core/cuda/on_device.hpp"
#include "engine/cuda/decoder_impl.hpp"
#include "engine/cuda/fault.hpp"

namespace shunt {

using device::MeetingPart;
using device::Phase;
using Stage = DeviceDecoder::Impl::Stage;

DeviceDecoder::DeviceDecoder(World& world, const DeviceHeap& heap, const ExpertMap& map,
                             const DeviceEngineOptions& options)
    : impl_(std::make_shared<Impl>(world, heap, map, options)) {}

const Tensor& DeviceDecoder::rows() const { return impl_->rows; }
const Tensor& DeviceDecoder::row_scales() const { return impl_->row_scales; }
const Tensor& DeviceDecoder::expert_out() const { return impl_->expert_out; }
const std::int32_t* DeviceDecoder::source_counts() const {
  return reinterpret_cast<const std::int32_t*>(impl_->counts.get());
}
Stream DeviceDecoder::stream() const { return impl_->engine->stream; }

DeviceTicket<Tensor> DeviceDecoder::dispatch(const DeviceRouting& routing, const ConstTensor& x, Stream stream) {
  const device::OnDevice scope(impl_->engine->device());  // events belong to the current device
  impl_->send(routing, x, stream, MeetingPart::whole);
  impl_->stage = Stage::received;
  return {impl_->engine->pending(), impl_->rows};
}

void DeviceDecoder::dispatch_send(const DeviceRouting& routing, const ConstTensor& x, Stream stream) {
  impl_->send(routing, x, stream, MeetingPart::saying);
  impl_->stage = Stage::sent;
}

DeviceTicket<Tensor> DeviceDecoder::dispatch_receive(Stream stream) {
  impl_->check_stage("dispatch_receive", Stage::sent);
  DeviceEngine::Impl& engine = *impl_->engine;
  const device::OnDevice scope(engine.device());
  engine.start_after(stream);
  engine.meet({OpKind::dispatch, Phase::end, impl_->hash}, MeetingPart::waiting);
  impl_->stage = Stage::received;
  return {engine.pending(), impl_->rows};
}

DeviceTicket<Tensor> DeviceDecoder::combine(const DeviceCombineOptions& options) {
  impl_->check_stage("combine", Stage::received);
  return impl_->receive(options, MeetingPart::whole);
}

void DeviceDecoder::combine_send(Stream stream) {
  impl_->check_stage("combine_send", Stage::received);
  DeviceEngine::Impl& engine = *impl_->engine;
  const device::OnDevice scope(engine.device());
  engine.start_after(stream);
  engine.meet({OpKind::combine, Phase::begin, impl_->hash}, MeetingPart::saying);
  impl_->stage = Stage::told;
}

DeviceTicket<Tensor> DeviceDecoder::combine_receive(const DeviceCombineOptions& options) {
  impl_->check_stage("combine_receive", Stage::told);
  return impl_->receive(options, MeetingPart::waiting);
}

std::optional<RankId> DeviceDecoder::missing() const {
  const device::FaultRecord& fault = impl_->engine->page().fault;
  const device::FaultRecord::Cause cause = device::cause_of(fault);
  if (cause != device::FaultRecord::deadline && cause != device::FaultRecord::lost) return std::nullopt;
  return RankId(fault.peer);
}

void DeviceDecoder::leave_out(std::span<const RankId> ranks) { impl_->leave_out(ranks); }

}  // namespace shunt
