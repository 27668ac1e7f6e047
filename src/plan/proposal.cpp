#include "plan/proposal.hpp"

#include <cstring>
#include <type_traits>

#include "core/fail.hpp"

namespace shunt {
namespace {

constexpr std::uint32_t kMagic = 0x6e616c70;  // "plan"
constexpr std::uint32_t kVersion = 1;

struct Header {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t round;
  std::int32_t source;
  Agreement agreement;
};
static_assert(std::is_trivially_copyable_v<Header>);
static_assert(std::has_unique_object_representations_v<Header>, "padding would send stray bytes");
constexpr std::size_t kHeaderWords = sizeof(Header) / sizeof(std::uint32_t);

std::size_t counts_words(const SourceCounts& counts) {
  return counts.rows.size() + counts.tokens_per_rank.size() + counts.tokens_per_node.size() + 1;
}

// Offset of the lists, in words.
std::size_t fixed_words(const SourceCounts& counts) { return kHeaderWords + counts_words(counts); }

// Copies words from a proposal, front to back; the caller has checked the size.
class WordReader {
 public:
  WordReader(std::span<const std::byte> bytes, std::size_t first_word) : next_(bytes.data() + first_word * 4) {}

  void read(std::span<std::uint32_t> words) {
    if (!words.empty()) std::memcpy(words.data(), next_, words.size_bytes());
    next_ += words.size_bytes();
  }

 private:
  const std::byte* next_;
};

void append(std::vector<std::uint32_t>& words, std::span<const std::uint32_t> more) {
  words.insert(words.end(), more.begin(), more.end());
}

void check_size(std::uint64_t actual, std::uint64_t expected_words, RankId source, RankId self) {
  if (actual != expected_words * sizeof(std::uint32_t))
    fail_because_of(source, "plan: rank {} sent rank {} a proposal of {} bytes, expected {}", source, self, actual,
                    expected_words * sizeof(std::uint32_t));
}

void check_header(std::span<const std::byte> bytes, const ProposalFormat& format, RankId source) {
  Header header{};
  if (bytes.size() >= sizeof(Header)) std::memcpy(&header, bytes.data(), sizeof(Header));
  if (header.magic != kMagic)
    fail_because_of(source, "plan: rank {} sent rank {} {} bytes that are no proposal", source, format.self,
                    bytes.size());
  if (header.version != kVersion)
    fail_because_of(source, "plan: rank {} has proposal version {}, rank {} has {}", source, header.version,
                    format.self, kVersion);
  if (header.source != source.value)
    fail_because_of(source, "plan: rank {} sent rank {} a proposal of rank {}", source, format.self, header.source);
  check_agreement(header.agreement, source, format.agreement, format.self);
  if (header.round != format.round)
    fail_because_of(source, "plan: rank {} is in round {}, rank {} in round {}", source, header.round, format.self,
                    format.round);
}

}  // namespace

std::vector<std::uint32_t> write_proposal(const ProposalFormat& format, const SourceCounts& counts,
                                          const Demand& demand, const Routing& routing) {
  const Header header{kMagic, kVersion, format.round, format.self.value, format.agreement};
  std::vector<std::uint32_t> words(kHeaderWords);
  std::memcpy(words.data(), &header, sizeof(header));
  append(words, counts.rows);
  append(words, counts.tokens_per_rank);
  append(words, counts.tokens_per_node);
  words.push_back(counts.routed_tokens);
  if (format.has_lists) {
    const auto extents = list_extents(counts, format.map);
    words.resize(fixed_words(counts) + extents.back().end());
    write_lists(std::span(words).subspan(fixed_words(counts)), extents, demand, routing, format.map);
  }
  return words;
}

std::size_t bytes_without_lists(const ProposalFormat& format) {
  return fixed_words(SourceCounts(format.map, format.topology)) * sizeof(std::uint32_t);
}

std::span<const std::uint32_t> own_list(std::span<const std::uint32_t> proposal, const ProposalFormat& format,
                                        const SourceCounts& counts, RankId receiver) {
  const ListExtent extent = list_extents(counts, format.map)[receiver.index()];
  return proposal.subspan(fixed_words(counts) + extent.begin, extent.end() - extent.begin);
}

SourceCounts read_counts(std::span<const std::byte> bytes, const ProposalFormat& format, RankId source) {
  check_header(bytes, format, source);
  SourceCounts counts(format.map, format.topology);
  const std::size_t fixed = fixed_words(counts);
  if (!format.has_lists || bytes.size() < fixed * sizeof(std::uint32_t))
    check_size(bytes.size(), fixed, source, format.self);

  WordReader reader(bytes, kHeaderWords);
  reader.read(counts.rows);
  reader.read(counts.tokens_per_rank);
  reader.read(counts.tokens_per_node);
  reader.read({&counts.routed_tokens, 1});
  check_counts(counts, format.map, format.topology, source, format.self);
  return counts;
}

TokenList read_list(std::span<const std::byte> bytes, const ProposalFormat& format, RankId source,
                    const SourceCounts& counts) {
  const auto extents = list_extents(counts, format.map);
  check_size(bytes.size(), fixed_words(counts) + extents.back().end(), source, format.self);
  const ListExtent& mine = extents[format.self.index()];
  TokenList list(mine.num_tokens, mine.num_entries);
  WordReader(bytes, fixed_words(counts) + mine.begin).read(list.words());
  check_list(list, counts.rows_of(format.self, format.map), format.agreement.topk, source, format.self);
  return list;
}

}  // namespace shunt
