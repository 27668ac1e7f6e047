// Text to train on: files as bytes, a tenth of them held out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace shunt::runtime {

struct Corpus {
  /// The files' bytes, each file preceded by a zero byte.
  std::vector<std::uint8_t> training, held_out;
  std::size_t num_files = 0;
};

/// A file, whose last tenth is held out; or a folder, whose text files are taken, and every tenth by the hash of its
/// path below the folder is held out. Hidden files and files with zero bytes are left out. Throws
/// Error(invalid_argument) if less than `least_bytes` remain on either side.
[[nodiscard]] Corpus read_corpus(const std::string& file_or_folder, std::size_t least_bytes);

/// Tracked sources and documents of the repository in which this program was built, held out as above. Throws
/// Error(invalid_argument) that says what to give instead if it was not built in one, or is installed.
[[nodiscard]] Corpus read_own_repository(std::size_t least_bytes);

/// Equal on ranks that have read the same bytes.
[[nodiscard]] std::uint64_t hash_of(const Corpus& corpus);

/// Begins of `count` sequences of a step. Sequence `first` + i of a step is the same whatever the number of ranks.
[[nodiscard]] std::vector<std::size_t> draw_sequences(std::size_t corpus_bytes, std::int64_t sequence,
                                                      std::uint64_t seed, std::int64_t step, std::int64_t first,
                                                      std::int64_t count);

}  // namespace shunt::runtime
