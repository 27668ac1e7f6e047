#include "core/trace_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "core/fail.hpp"
#include "core/trace_checks.hpp"

namespace shunt {

namespace trace_format {

std::uint64_t checksum(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::uint64_t header_checksum(const Header& header) {
  return checksum(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, checksum)));
}

}  // namespace trace_format

namespace {

using namespace trace_format;

template <class... Args>
[[noreturn]] void refuse(const std::string& path, fmt::format_string<Args...> text, Args&&... args) {
  fail(ErrorCode::invalid_argument, "{}: {}", path, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace

TraceFile::TraceFile(const std::string& path) : path_(path) {
  map_file();
  try {
    read_index(read_header());
  } catch (...) {
    munmap(const_cast<std::byte*>(data_), bytes_);
    throw;
  }
}

TraceFile::~TraceFile() { munmap(const_cast<std::byte*>(data_), bytes_); }

void TraceFile::map_file() {
  struct stat status {};
  // Checked before opening, because opening a pipe would wait for its writer.
  if (stat(path_.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) refuse(path_, "no regular file");
  const int file = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) refuse(path_, "can't be opened: {}", std::strerror(errno));
  const bool is_known = fstat(file, &status) == 0;
  bytes_ = is_known ? static_cast<std::size_t>(status.st_size) : 0;
  void* const data = bytes_ > 0 ? mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file, 0) : nullptr;
  const int cause = errno;
  close(file);
  if (is_known && bytes_ == 0) refuse(path_, "foreign: the file is empty, which no routing trace is");
  errno = cause;
  if (!is_known || data == MAP_FAILED) fail_errno("{}: can't be mapped", path_);
  data_ = static_cast<const std::byte*>(data);
}

Header TraceFile::read_header() {
  Header header;
  if (std::memcmp(data_, kMagic.data(), std::min(bytes_, kMagic.size())) != 0)
    refuse(path_, "foreign: no routing trace begins so");
  if (bytes_ < sizeof(header)) refuse(path_, "truncated: {} bytes, shorter than the header", bytes_);
  std::memcpy(&header, data_, sizeof(header));
  // Checked before the checksum, because another version may have another header.
  if (header.version > kVersion)
    refuse(path_, "of a newer version: {}; this build reads up to {}", header.version, kVersion);
  if (header.version == 0 || header_checksum(header) != header.checksum)
    refuse(path_, "corrupt: the checksum of its header differs");
  if (header.index_offset == 0) refuse(path_, "half-written: its writer did not finish");

  const bool has_range = header.layers >= 1 && header.layers <= TraceShape::kMaxLayers && header.experts >= 1 &&
                         header.experts <= TraceShape::kMaxExperts && header.topk >= 1 &&
                         header.topk <= Routing::kMaxTopK;
  if (!has_range || header.contents > kAllContents || header.reserved != 0)
    refuse(path_, "corrupt: {} layers, {} experts, top-{}, contents {}, reserved {}", header.layers, header.experts,
           header.topk, header.contents, header.reserved);
  shape_ = {.layers = static_cast<std::int32_t>(header.layers),
            .experts = static_cast<std::int32_t>(header.experts),
            .topk = static_cast<std::int32_t>(header.topk),
            .weights = (header.contents & kWeights) != 0,
            .scores = (header.contents & kScores) != 0,
            .sources = (header.contents & kSources) != 0};
  return header;
}

void TraceFile::read_index(const Header& header) {
  constexpr std::uint64_t kMostChunks = std::uint64_t{1} << 48;  // so that no sum below overflows
  if (header.index_offset < sizeof(header) || header.index_offset % 8 != 0 || header.index_offset >> 60 != 0 ||
      header.num_chunks > kMostChunks)
    refuse(path_, "corrupt: an index of {} chunks at byte {}", header.num_chunks, header.index_offset);
  const std::uint64_t expected = header.index_offset + header.num_chunks * sizeof(ChunkEntry);
  if (bytes_ < expected) refuse(path_, "truncated: {} bytes of {}", bytes_, expected);
  if (bytes_ > expected) refuse(path_, "corrupt: {} bytes, expected {}", bytes_, expected);
  const std::span index(data_ + header.index_offset, bytes_ - header.index_offset);
  if (checksum(index) != header.index_checksum) refuse(path_, "corrupt: the checksum of its index differs");

  layers_ = std::vector<Layer>(header.layers);
  std::uint64_t offset = sizeof(header);
  for (std::uint64_t number = 0; number < header.num_chunks; ++number) {
    ChunkEntry entry;
    std::memcpy(&entry, index.data() + number * sizeof(entry), sizeof(entry));
    add_chunk(entry, number, offset);
    const std::uint64_t size = ChunkLayout(shape_, entry).bytes;
    if (size > header.index_offset - offset) refuse(path_, "corrupt: chunk {} reaches into the index", number);
    offset += size;
  }
  if (offset != header.index_offset)
    refuse(path_, "corrupt: its chunks end at byte {}, its index begins at {}", offset, header.index_offset);
}

void TraceFile::add_chunk(const ChunkEntry& entry, std::uint64_t number, std::uint64_t offset) {
  const auto demand = [&](bool holds, const char* name, std::uint32_t value) {
    if (!holds) refuse(path_, "corrupt: chunk {}: {} is {}", number, name, value);
  };
  demand(entry.layer < layers_.size(), "layer", entry.layer);
  Layer& layer = layers_[entry.layer];
  demand(entry.tokens >= 1, "tokens", entry.tokens);
  demand(entry.scored <= entry.tokens && (shape_.scores || entry.scored == 0) &&
             (entry.scored == 0 || layer.scored == layer.tokens),
         "scored", entry.scored);
  demand(shape_.sources ? entry.runs >= 1 && entry.runs <= entry.tokens : entry.runs == 0, "runs", entry.runs);
  demand(entry.expert_bytes == 2 || (entry.expert_bytes == 1 && shape_.experts <= 256), "expert_bytes",
         entry.expert_bytes);
  demand(entry.reserved == 0, "reserved", entry.reserved);
  layer.chunks.push_back({entry, layer.tokens, data_ + offset});
  layer.tokens += entry.tokens;
  layer.scored += entry.scored;
}

void TraceFile::verify(std::int32_t number) const {
  const Layer& layer = at(number);
  if (layer.is_verified.load(std::memory_order_acquire)) return;  // pairs with the release below
  const std::lock_guard lock(layer.verifying);
  if (layer.is_verified.load(std::memory_order_relaxed)) return;
  ChunkChecks checks(shape_);
  for (const Chunk& chunk : layer.chunks) {
    // Chunks are small, so that the bytes read for the checksum are still in the cache for the checks.
    if (checksum({chunk.data, ChunkLayout(shape_, chunk.entry).bytes}) != chunk.entry.checksum)
      refuse(path_, "layer {}: corrupt: the checksum of tokens {} to {} differs", number, chunk.first_token,
             chunk.first_token + chunk.entry.tokens - 1);
    if (const std::string fault = checks.fault_of(chunk.entry, chunk.data); !fault.empty())
      refuse(path_, "layer {}: corrupt: {}", number, fault);
  }
  layer.is_verified.store(true, std::memory_order_release);
}

void TraceFile::release(const std::byte* begin, std::size_t bytes) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  const std::uintptr_t first = address / page * page;
  // May drop a page shared with another chunk too; it is unmodified, so it can be read again.
  madvise(reinterpret_cast<void*>(first), address + bytes - first, MADV_DONTNEED);
}

}  // namespace shunt
