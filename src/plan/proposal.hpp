// The bytes of one planning round: header, counts and, in `token_unique`, a token list per rank.
//
// Peers can alter the memory of their proposals at any time, so each word is copied once and checked in the copy. A
// proposal contains no sizes: they follow from the agreement, then from checked counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/agreement.hpp"
#include "plan/counts.hpp"
#include "plan/token_list.hpp"

namespace shunt {

/// The expected contents of all proposals of a round, including this rank's.
struct ProposalFormat {
  const ExpertMap& map;
  const Topology& topology;
  RankId self;
  Agreement agreement;
  std::uint32_t round;
  bool has_lists;
};

std::vector<std::uint32_t> write_proposal(const ProposalFormat& format, const SourceCounts& counts,
                                          const Demand& demand, const Routing& routing);

/// Bytes of a proposal before its lists.
std::size_t bytes_without_lists(const ProposalFormat& format);

/// Throws Error(mismatch) that names `source` and the reading rank if anything in the proposal differs from the format.
SourceCounts read_counts(std::span<const std::byte> bytes, const ProposalFormat& format, RankId source);

/// The token list for `receiver` in this rank's own proposal.
std::span<const std::uint32_t> own_list(std::span<const std::uint32_t> proposal, const ProposalFormat& format,
                                        const SourceCounts& counts, RankId receiver);

/// This rank's list in a proposal whose counts were read before. Throws as read_counts does.
TokenList read_list(std::span<const std::byte> bytes, const ProposalFormat& format, RankId source,
                    const SourceCounts& counts);

}  // namespace shunt
