// Any bytes in a file give a trace, or one Error(invalid_argument) that names the file and the cause.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "shunt/error.hpp"
#include "support/memory_file.hpp"
#include "support/scratch_folder.hpp"
#include "support/trace_bytes.hpp"

namespace shunt::test {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace trace_format;

constexpr TraceShape kShape = {.layers = 3, .experts = 5, .topk = 2, .weights = true, .scores = true, .sources = true};

class HostileTrace : public testing::Test {
 protected:
  HostileTrace() {
    std::mt19937_64 generator(1);
    Dice dice(generator);
    const ScratchFolder folder;
    TraceWriter writer(folder.file("a.trace"), kShape);
    for (const std::int32_t layer : {0, 2}) {
      const TraceTokens tokens = TraceTokens::random(dice, kShape, 7, 3, 0, true);
      writer.append(layer, tokens.routing(kShape.topk), tokens.scores, RankId(layer));
      writer.append(layer, tokens.routing(kShape.topk), {}, RankId(1));
    }
    writer.finish();
    good_ = read_bytes(folder.file("a.trace"));
  }

  /// The error for a file of these bytes, without its name; or "accepted".
  std::string error_of(const TraceBytes& bytes) {
    file_.write(bytes);
    try {
      read_all(path_);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
      EXPECT_THAT(error.what(), StartsWith(path_ + ": "));
      return std::string(error.what()).substr(path_.size() + 2);
    }
    return "accepted";
  }

  /// The same after a change with corrected checksums.
  std::string error_after(const std::function<void(TraceBytes&)>& change) {
    TraceBytes bytes = good_;
    change(bytes);
    mend_checksums(bytes);
    return error_of(bytes);
  }
  std::string error_with_header(const std::function<void(Header&)>& change) {
    return error_after([&](TraceBytes& bytes) { change(*reinterpret_cast<Header*>(bytes.data())); });
  }
  std::string error_with_entry(const std::function<void(ChunkEntry&)>& change) {
    return error_after(
        [&](TraceBytes& bytes) { change(*reinterpret_cast<ChunkEntry*>(bytes.data() + index_offset())); });
  }

  /// Three tokens with experts 10, 11, 12, …; the second token's codes are changed, with corrected checksums.
  static TraceBytes forged(const TraceShape& shape, const std::function<void(char*)>& change) {
    const ScratchFolder folder;
    TraceWriter writer(folder.file("a.trace"), shape);
    const auto topk = static_cast<std::size_t>(shape.topk);
    std::vector<std::int32_t> experts(topk * 3);
    for (std::size_t entry = 0; entry < experts.size(); ++entry)
      experts[entry] = 10 + static_cast<std::int32_t>(entry % topk);
    writer.append(0, {experts, {}, shape.topk});
    writer.finish();
    TraceBytes bytes = read_bytes(folder.file("a.trace"));
    change(bytes.data() + sizeof(Header) + topk * (shape.experts > 256 ? 2 : 1));
    mend_checksums(bytes);
    return bytes;
  }

  [[nodiscard]] std::uint64_t index_offset() const {
    return reinterpret_cast<const Header*>(good_.data())->index_offset;
  }
  [[nodiscard]] ChunkLayout first_chunk() const {
    return {kShape, *reinterpret_cast<const ChunkEntry*>(good_.data() + index_offset())};
  }

  MemoryFile file_;
  std::string path_ = file_.path();
  TraceBytes good_;
};

TEST_F(HostileTrace, IsAcceptedAsLongAsNothingIsChanged) {
  EXPECT_EQ(error_of(good_), "accepted");
  EXPECT_EQ(error_after([](TraceBytes&) {}), "accepted");
}

TEST_F(HostileTrace, EveryChangedByteIsNoticed) {
  for (std::size_t i = 0; i < good_.size(); ++i) {
    for (const int change : {0x01, 0x80, 0xff}) {
      TraceBytes bytes = good_;
      bytes[i] = static_cast<char>(bytes[i] ^ change);
      EXPECT_THAT(error_of(bytes), AnyOf(StartsWith("foreign"), StartsWith("of a newer version"), HasSubstr("corrupt")))
          << "byte " << i;
    }
  }
}

TEST_F(HostileTrace, EveryTruncationIsNoticed) {
  EXPECT_THAT(error_of({}), StartsWith("foreign"));
  for (std::size_t size = 1; size < good_.size(); ++size)
    EXPECT_THAT(error_of({good_.begin(), good_.begin() + static_cast<std::ptrdiff_t>(size)}),
                StartsWith("truncated: " + std::to_string(size) + " bytes"));
}

TEST_F(HostileTrace, BytesAfterTheEndAreNoticed) {
  TraceBytes bytes = good_;
  bytes.push_back(0);
  EXPECT_THAT(error_of(bytes), StartsWith("corrupt"));
}

TEST_F(HostileTrace, OtherFilesAreRefused) {
  EXPECT_THAT(error_of(TraceBytes(1000, 'x')), StartsWith("foreign"));
  EXPECT_THAT(error_of({'0', ' ', '1', '\n'}), StartsWith("foreign"));
  EXPECT_THROW(RoutingTrace::open("/"), Error);
  EXPECT_THROW(RoutingTrace::open(path_ + "/none"), Error);
}

TEST_F(HostileTrace, ANewerVersionIsNamed) {
  EXPECT_EQ(error_with_header([](Header& header) { header.version = 2; }),
            "of a newer version: 2; this build reads up to 1");
}

TEST_F(HostileTrace, InvalidSizesAreRefusedDespiteValidChecksums) {
  constexpr std::uint64_t kHuge = ~std::uint64_t{0};
  EXPECT_THAT(error_with_header([](Header& header) { header.layers = 0; }), StartsWith("corrupt: 0 layers"));
  EXPECT_THAT(error_with_header([](Header& header) { header.layers = ~0u; }), StartsWith("corrupt"));
  EXPECT_THAT(error_with_header([](Header& header) { header.experts = 0x10000; }), StartsWith("corrupt"));
  EXPECT_THAT(error_with_header([](Header& header) { header.topk = 65; }), StartsWith("corrupt"));
  EXPECT_THAT(error_with_header([](Header& header) { header.contents = 8; }), StartsWith("corrupt"));
  EXPECT_THAT(error_with_header([](Header& header) { header.reserved = 1; }), StartsWith("corrupt"));
  EXPECT_THAT(error_with_header([](Header& header) { header.num_chunks = kHuge / 32; }), StartsWith("corrupt"));
  EXPECT_THAT(error_with_header([](Header& header) { header.index_offset = kHuge - 7; }), StartsWith("corrupt"));
  EXPECT_THAT(error_with_header([](Header& header) { header.index_offset = 8; }), StartsWith("corrupt"));
  EXPECT_THAT(error_with_entry([](ChunkEntry& entry) { entry.layer = 3; }), HasSubstr("chunk 0: layer is 3"));
  EXPECT_THAT(error_with_entry([](ChunkEntry& entry) { entry.tokens = 0; }), HasSubstr("tokens is 0"));
  EXPECT_THAT(error_with_entry([](ChunkEntry& entry) { entry.tokens = ~0u; }), HasSubstr("reaches into the index"));
  EXPECT_THAT(error_with_entry([](ChunkEntry& entry) { entry.scored = 15; }), HasSubstr("scored is 15"));
  EXPECT_THAT(error_with_entry([](ChunkEntry& entry) { entry.runs = 0; }), HasSubstr("runs is 0"));
  EXPECT_THAT(error_with_entry([](ChunkEntry& entry) { entry.runs = 15; }), HasSubstr("runs is 15"));
  EXPECT_THAT(error_with_entry([](ChunkEntry& entry) { entry.expert_bytes = 0; }), HasSubstr("expert_bytes is 0"));
  EXPECT_THAT(error_with_entry([](ChunkEntry& entry) { entry.scored = 0; }), HasSubstr("its chunks end at byte"));
}

TEST_F(HostileTrace, ScoresAfterTokensWithoutScoresAreRefused) {
  EXPECT_EQ(error_after(
                [&](TraceBytes& bytes) { reinterpret_cast<ChunkEntry*>(bytes.data() + index_offset())[1].layer = 0; }),
            "corrupt: chunk 1: scored is 3");
}

TEST_F(HostileTrace, InvalidValuesAreRefusedDespiteValidChecksums) {
  const auto error_with_byte = [&](std::uint64_t offset, int value) {
    return error_after([&](TraceBytes& bytes) { bytes[sizeof(Header) + offset] = static_cast<char>(value); });
  };
  const ChunkLayout chunk = first_chunk();
  EXPECT_EQ(error_with_byte(chunk.experts + 2, 5), "layer 0: corrupt: token 1: expert 5 is not in 0 to 4");
  EXPECT_THAT(error_with_byte(chunk.weights + 1, 0x7c), HasSubstr("layer 0: corrupt: a weight is not finite"));
  EXPECT_THAT(error_with_byte(chunk.scores + 1, 0xff), HasSubstr("layer 0: corrupt: a score is not finite"));
  EXPECT_THAT(error_with_byte(3, 0x80), HasSubstr("source -2147483648 of 7 tokens"));
  EXPECT_THAT(error_with_byte(4, 6), HasSubstr("its sources are of 13 tokens, not of 14"));
  EXPECT_THAT(error_with_byte(4, 0), HasSubstr("source 0 of 0 tokens"));
  EXPECT_EQ(error_after([&](TraceBytes& bytes) {
              char* const token = bytes.data() + sizeof(Header) + chunk.experts + 6;
              token[0] = token[1] = 4;
            }),
            "layer 0: corrupt: token 3: expert 4 stands twice");
}

TEST_F(HostileTrace, ARepeatedExpertIsFoundAtAnyTwoPositions) {
  for (const std::int32_t num_experts : {255, 256, 300}) {
    for (const std::int32_t topk : {2, 8, 9}) {
      const TraceShape shape = {.layers = 1, .experts = num_experts, .topk = topk};
      const std::size_t width = num_experts > 256 ? 2 : 1;
      for (std::int32_t later = 1; later < topk; ++later) {
        for (std::int32_t earlier = 0; earlier < later; ++earlier) {
          const TraceBytes bytes = forged(shape, [&](char* token) {
            std::memcpy(token + static_cast<std::size_t>(later) * width,
                        token + static_cast<std::size_t>(earlier) * width, width);
          });
          EXPECT_EQ(error_of(bytes),
                    "layer 0: corrupt: token 1: expert " + std::to_string(10 + earlier) + " stands twice");
        }
      }
    }
  }
}

TEST_F(HostileTrace, AnExpertOutOfRangeIsFoundAtAnyPosition) {
  for (const std::int32_t num_experts : {254, 300}) {
    for (const std::int32_t topk : {2, 8, 9}) {
      const TraceShape shape = {.layers = 1, .experts = num_experts, .topk = topk};
      for (std::int32_t place = 0; place < topk; ++place) {
        const TraceBytes bytes = forged(shape, [&](char* token) {
          std::memcpy(token + place * (num_experts > 256 ? 2 : 1), &num_experts, num_experts > 256 ? 2 : 1);
        });
        EXPECT_EQ(error_of(bytes), "layer 0: corrupt: token 1: expert " + std::to_string(num_experts) +
                                       " is not in 0 to " + std::to_string(num_experts - 1));
      }
    }
  }
}

TEST_F(HostileTrace, AnyChangeWithValidChecksumsIsReadOrRefused) {
  std::mt19937_64 generator(7);
  Dice dice(generator);
  int num_accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    const std::string error = error_after([&](TraceBytes& bytes) {
      for (std::int32_t changes = dice.between(1, 3); changes > 0; --changes) {
        const auto last = static_cast<std::int32_t>(bytes.size()) - 1;
        const auto begin = dice.one_in(2) ? static_cast<std::int32_t>(index_offset()) : 8;
        bytes[static_cast<std::size_t>(dice.between(begin, last))] =
            static_cast<char>(dice.pick({0, 1, 2, 0x7f, 0xff}));
      }
      if (dice.one_in(8))
        bytes.resize(static_cast<std::size_t>(dice.between(0, static_cast<std::int32_t>(bytes.size()))));
    });
    num_accepted += error == "accepted" ? 1 : 0;
  }
  EXPECT_GT(num_accepted, 0);
  EXPECT_LT(num_accepted, 4000);
}

}  // namespace
}  // namespace shunt::test
