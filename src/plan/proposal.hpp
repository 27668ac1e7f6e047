// The bytes of one round: header, counts, and in `token_unique` a token list per rank.
//
// Peers' bytes lie in memory that the peers can alter at any time, so each word is copied first and checked in the
// copy. Nothing in them is a size: sizes follow from what the ranks agree on, then from checked counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/agreement.hpp"
#include "plan/counts.hpp"
#include "plan/token_list.hpp"

namespace shunt {

/// What a rank expects of every proposal of a round, its own included.
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

/// Throws Error(mismatch) that names `source` and the reading rank if anything in the proposal is not as agreed.
SourceCounts read_counts(std::span<const std::byte> bytes, const ProposalFormat& format, RankId source);

/// The list for a rank in this rank's own proposal.
std::span<const std::uint32_t> own_list(std::span<const std::uint32_t> proposal, const ProposalFormat& format,
                                        const SourceCounts& counts, RankId receiver);

/// This rank's list in a proposal whose counts were read before. Throws as read_counts does.
TokenList read_list(std::span<const std::byte> bytes, const ProposalFormat& format, RankId source,
                    const SourceCounts& counts);

}  // namespace shunt
