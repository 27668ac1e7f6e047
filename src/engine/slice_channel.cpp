#include "engine/slice_channel.hpp"

#include <cstring>

#include "core/fail.hpp"

namespace shunt {

bool SliceChannel::take_grant(std::uint64_t num_slices, std::uint64_t bytes_each) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 31;
  if (num_slices == 0 || num_slices > kMost || bytes_each == 0 || bytes_each > kMost) return false;
  if (granted_ > 0 && (bytes_each != granted_bytes_ || granted_ + num_slices > most_granted())) return false;
  if (granted_ == 0) first_grant_ = static_cast<std::uint32_t>(num_slices);
  granted_ += static_cast<std::uint32_t>(num_slices);
  granted_bytes_ = bytes_each;
  return true;
}

void SliceChannel::open(Shared& shared, RankId peer, RankId member) {
  shared_ = &shared;
  peer_ = peer;
  member_ = member;
  grant(shared.limits.depth);
}

void SliceChannel::close() {
  if (const std::uint32_t unused = num_granted_ - num_arrived_; unused > 0)
    shared_->link.expect(member_, -std::int64_t{unused}, shared_->limits.slice_bytes);
  shared_ = nullptr;
}

void SliceChannel::grant(std::uint32_t num_slices) {
  num_granted_ += num_slices;
  shared_->link.expect(member_, num_slices, shared_->limits.slice_bytes);
  shared_->post_grant(member_, num_slices);
}

void SliceChannel::refuse(const std::string& text) const { fail_because_of(member_, "rank {} {}", peer_, text); }

std::optional<OutSlice> SliceChannel::open_slice() {
  if (room() == 0) return std::nullopt;
  auto slice = shared_->link.open(slice_bytes());
  shared_->link_was_full |= !slice;
  return slice;
}

void SliceChannel::post_slice(OutSlice slice, std::size_t bytes, bool is_last) {
  SliceTag tag = shared_->tag;
  tag.index = num_posted_++;
  tag.is_last = has_posted_last_ = is_last;
  if (is_last) is_sending_ = false;
  shared_->num_bytes_sent += bytes;
  shared_->link.post(member_, std::move(slice), bytes, tag);
}

bool SliceChannel::start_slice() {
  slice_ = open_slice();
  filled_ = 0;
  return slice_.has_value();
}

void SliceChannel::post_current(bool is_last) {
  post_slice(std::move(*slice_), filled_, is_last);
  slice_.reset();
}

std::byte* SliceChannel::open_segment(std::size_t bytes) {
  if (is_large_ && !flush_large()) return nullptr;
  if (slice_ && filled_ + bytes > slice_->bytes.size() && filled_ > 0) post_current(false);
  if (!slice_ && !start_slice()) return nullptr;
  opened_ = bytes;
  if (bytes <= slice_->bytes.size() - filled_) return slice_->bytes.data() + filled_;
  large_.resize(bytes);
  is_large_ = true;
  large_posted_ = 0;
  return large_.data();
}

void SliceChannel::commit() {
  if (is_large_)
    flush_large();
  else
    filled_ += opened_;
}

void SliceChannel::flush() {
  if (is_large_ && !flush_large()) return;
  if (slice_ && filled_ > 0) post_current(false);
}

bool SliceChannel::flush_large() {
  while (large_posted_ < large_.size()) {
    if (slice_ && filled_ == slice_->bytes.size()) post_current(false);
    if (!slice_ && !start_slice()) return false;
    const std::size_t count = std::min(large_.size() - large_posted_, slice_->bytes.size() - filled_);
    std::memcpy(slice_->bytes.data() + filled_, large_.data() + large_posted_, count);
    filled_ += count;
    large_posted_ += count;
  }
  is_large_ = false;
  return true;
}

bool SliceChannel::finish_sending() {
  if (!is_sending_) return true;
  if (is_large_ && !flush_large()) return false;
  if (!slice_ && !start_slice()) return false;
  post_current(true);
  return true;
}

void SliceChannel::arrive(InSlice slice) {
  if (!is_granted(slice))
    refuse(fmt::format("sent rank {} slice #{} of {} bytes, which was not granted", shared_->self, slice.tag.index,
                       slice.bytes.size()));
  if (slice.tag.is_last) num_slices_ = slice.tag.index + 1;
  ++num_arrived_;
  const std::uint32_t index = slice.tag.index;
  arrived_.emplace(index, std::move(slice));
}

bool SliceChannel::is_granted(const InSlice& slice) const {
  const std::uint32_t index = slice.tag.index;
  if (index < next_ || index >= num_granted_ || slice.bytes.size() > shared_->limits.slice_bytes) return false;
  if (arrived_.contains(index)) return false;
  if (num_slices_ != kUnknown) return index < num_slices_ && !slice.tag.is_last;
  return !slice.tag.is_last || arrived_.empty() || index > arrived_.rbegin()->first;
}

const InSlice* SliceChannel::front_slice() const {
  const auto found = arrived_.find(next_);
  return found == arrived_.end() ? nullptr : &found->second;
}

void SliceChannel::pop_slice() {
  const auto found = arrived_.find(next_++);
  SHUNT_CHECK(found != arrived_.end());
  has_ended_ = found->second.tag.is_last;
  arrived_.erase(found);
  used_ = 0;
  if (!has_ended_) grant(1);
}

const std::byte* SliceChannel::front(std::size_t bytes) {
  while (!is_whole_) {
    if (has_ended_) refuse("sent less than was agreed");
    const InSlice* const slice = front_slice();
    if (!slice) return nullptr;
    const std::byte* const unread = slice->bytes.data() + used_;
    const std::size_t left = slice->bytes.size() - used_;
    if (pieces_.empty() && bytes <= left) {
      front_bytes_ = bytes;
      return unread;
    }
    const std::size_t count = std::min(left, bytes - pieces_.size());
    pieces_.insert(pieces_.end(), unread, unread + count);
    used_ += count;
    is_whole_ = pieces_.size() == bytes;
    if (count == left) pop_slice();
  }
  return pieces_.data();
}

void SliceChannel::pop() {
  if (is_whole_) {
    pieces_.clear();
    is_whole_ = false;
    return;
  }
  used_ += front_bytes_;
  if (used_ == front_slice()->bytes.size()) pop_slice();
}

bool SliceChannel::finish_receiving() {
  if (has_ended_) return true;
  const InSlice* const slice = front_slice();
  if (!slice) return false;
  if (slice->bytes.size() > used_ || !slice->tag.is_last) refuse("sent more than was agreed");
  pop_slice();
  return true;
}

}  // namespace shunt
