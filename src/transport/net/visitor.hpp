// Rank 0's side of one connection.
#pragma once

#include <optional>
#include <string>

#include "transport/net/frames.hpp"
#include "transport/net/proof.hpp"

namespace shunt::net {

/// A stranger that may become a guest: it sends a claim and gets rank 0's; sends a proof, and gets rank 0's.
class Visitor {
 public:
  /// `own` is what rank 0 claims on this connection. A stranger has time until `patience` to prove itself.
  Visitor(Descriptor socket, const Claim& own, Deadline patience);

  [[nodiscard]] bool is_proven() const { return frames_.has_value(); }
  /// It has tried to prove itself, and can't.
  [[nodiscard]] bool is_refused() const { return is_refused_; }
  [[nodiscard]] Deadline patience() const { return patience_; }
  [[nodiscard]] Stream& stream() { return frames_ ? frames_->stream() : stranger_; }
  [[nodiscard]] const Stream& stream() const { return frames_ ? frames_->stream() : stranger_; }

  /// Goes on with the handshake as far as what has come allows.
  void shake_hands(const std::string& token);

  /// Of one that has tried to prove itself.
  [[nodiscard]] const Claim& claim() const { return *claim_; }

  /// The rest is for proven guests only.
  [[nodiscard]] RankId rank() const { return RankId(claim_->rank); }
  [[nodiscard]] FrameStream& frames() { return *frames_; }

  std::optional<Bytes> card;              ///< once it has come
  std::optional<Deadline> doubted_until;  ///< another says that it is this rank; by then this one has to answer

 private:
  void hear_proof(const std::string& token, std::span<const std::byte> proof);

  Claim own_;
  Deadline patience_;
  Stream stranger_;  // moves into the frames
  std::optional<Claim> claim_;
  std::optional<FrameStream> frames_;
  bool is_refused_ = false;
};

}  // namespace shunt::net
