// The byte format of routing traces; docs/concepts/routing-traces.md describes it, and tools/trace_from_npz writes it
// too.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "shunt/routing_trace.hpp"

namespace shunt::trace_format {

static_assert(std::endian::native == std::endian::little, "traces are little-endian and read where they are mapped");

/// Like PNG's: no text begins with it, and transfers that convert line ends are detected.
constexpr std::array<std::uint8_t, 8> kMagic = {0x89, 'S', 'H', 'T', 'R', '\r', '\n', 0x1a};
constexpr std::uint32_t kVersion = 1;

enum Contents : std::uint32_t { kWeights = 1, kScores = 2, kSources = 4, kAllContents = 7 };

struct Header {
  std::array<std::uint8_t, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t contents = 0;
  std::uint32_t layers = 0;
  std::uint32_t experts = 0;
  std::uint32_t topk = 0;
  std::uint32_t reserved = 0;
  std::uint64_t index_offset = 0;  ///< 0 until the file is finished
  std::uint64_t num_chunks = 0;
  std::uint64_t index_checksum = 0;
  std::uint64_t checksum = 0;  ///< of all preceding fields
};
static_assert(sizeof(Header) == 64);

/// An entry of the index. Chunks are contiguous and in the order of the index, so their offsets follow from their
/// sizes.
struct ChunkEntry {
  std::uint32_t layer = 0;
  std::uint32_t tokens = 0;
  std::uint32_t scored = 0;  ///< leading tokens that have scores
  std::uint32_t runs = 0;    ///< runs of tokens with one source
  std::uint32_t expert_bytes = 1;
  std::uint32_t reserved = 0;
  std::uint64_t checksum = 0;  ///< of the chunk, padding included
};
static_assert(sizeof(ChunkEntry) == 32);

struct SourceRun {
  std::int32_t rank = 0;
  std::uint32_t tokens = 0;
};
static_assert(sizeof(SourceRun) == 8);

/// Offsets of the parts of a chunk. In this order every part is aligned to its elements.
struct ChunkLayout {
  ChunkLayout(const TraceShape& shape, const ChunkEntry& entry) {
    const std::uint64_t choices = std::uint64_t{entry.tokens} * static_cast<std::uint64_t>(shape.topk);
    weights = std::uint64_t{entry.runs} * sizeof(SourceRun);
    scores = weights + (shape.weights ? choices * 2 : 0);
    experts = scores + std::uint64_t{entry.scored} * static_cast<std::uint64_t>(shape.experts) * 2;
    bytes = (experts + choices * entry.expert_bytes + 7) / 8 * 8;
  }

  std::uint64_t weights;
  std::uint64_t scores;
  std::uint64_t experts;
  std::uint64_t bytes;  ///< all parts, zero-padded to whole words
};

/// The code of a dropped choice: all bits set. With 256 experts, a chunk of one-byte codes has no drops, and 255 is an
/// expert.
constexpr std::uint32_t dropped_code(std::uint32_t expert_bytes) { return expert_bytes == 1 ? 0xff : 0xffff; }
constexpr bool can_drop(std::int32_t experts, std::uint32_t expert_bytes) {
  return static_cast<std::uint32_t>(experts) <= dropped_code(expert_bytes);
}

/// XXH3, 64 bits, seed 0.
std::uint64_t checksum(std::span<const std::byte> bytes);

std::uint64_t header_checksum(const Header& header);

}  // namespace shunt::trace_format
