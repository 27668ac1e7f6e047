#include "engine/segments.hpp"

#include <algorithm>
#include <cstring>

namespace shunt {

bool SegmentWriter::open_slice() {
  slice_ = streams_->open(peer_);
  used_ = 0;
  return slice_.has_value();
}

void SegmentWriter::post(bool is_last) {
  streams_->post(peer_, std::move(*slice_), used_, is_last);
  slice_.reset();
}

std::byte* SegmentWriter::open(std::size_t bytes) {
  if (is_large_ && !flush_large()) return nullptr;
  if (slice_ && used_ + bytes > slice_->bytes.size() && used_ > 0) post(false);
  if (!slice_ && !open_slice()) return nullptr;
  opened_ = bytes;
  if (bytes <= slice_->bytes.size() - used_) return slice_->bytes.data() + used_;
  large_.resize(bytes);
  is_large_ = true;
  large_posted_ = 0;
  return large_.data();
}

void SegmentWriter::commit() {
  if (is_large_)
    flush_large();
  else
    used_ += opened_;
}

void SegmentWriter::flush() {
  if (is_large_ && !flush_large()) return;
  if (slice_ && used_ > 0) post(false);
}

bool SegmentWriter::flush_large() {
  while (large_posted_ < large_.size()) {
    if (slice_ && used_ == slice_->bytes.size()) post(false);
    if (!slice_ && !open_slice()) return false;
    const std::size_t count = std::min(large_.size() - large_posted_, slice_->bytes.size() - used_);
    std::memcpy(slice_->bytes.data() + used_, large_.data() + large_posted_, count);
    used_ += count;
    large_posted_ += count;
  }
  is_large_ = false;
  return true;
}

bool SegmentWriter::finish() {
  if (finished_) return true;
  if (is_large_ && !flush_large()) return false;
  if (!slice_ && !open_slice()) return false;
  post(true);
  finished_ = true;
  return true;
}

const std::byte* SegmentReader::front(std::size_t bytes) {
  while (!is_whole_) {
    if (streams_->has_ended(peer_)) streams_->refuse(peer_, "sent less than was agreed");
    const InSlice* slice = streams_->front(peer_);
    if (!slice) return nullptr;
    const std::size_t left = slice->bytes.size() - used_;
    if (pieces_.empty() && bytes <= left) {
      front_ = bytes;
      return slice->bytes.data() + used_;
    }
    const std::size_t count = std::min(left, bytes - pieces_.size());
    const std::byte* piece = slice->bytes.data() + used_;
    pieces_.insert(pieces_.end(), piece, piece + count);
    used_ += count;
    is_whole_ = pieces_.size() == bytes;
    if (used_ < slice->bytes.size()) continue;
    streams_->pop(peer_);
    used_ = 0;
  }
  return pieces_.data();
}

void SegmentReader::pop() {
  if (is_whole_) {
    pieces_.clear();
    is_whole_ = false;
    return;
  }
  used_ += front_;
  if (used_ < streams_->front(peer_)->bytes.size()) return;
  streams_->pop(peer_);
  used_ = 0;
}

bool SegmentReader::finish() {
  if (streams_->has_ended(peer_)) return true;
  const InSlice* slice = streams_->front(peer_);
  if (!slice) return false;
  if (slice->bytes.size() > used_ || !slice->tag.is_last) streams_->refuse(peer_, "sent more than was agreed");
  streams_->pop(peer_);
  return true;
}

}  // namespace shunt
