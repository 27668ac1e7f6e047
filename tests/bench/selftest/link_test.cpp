#include "bench/selftest/link.hpp"

#include <gmock/gmock.h>

#include <algorithm>

#include "support/require_error.hpp"

namespace shunt::bench::selftest {
namespace {

using testing::ElementsAre, testing::HasSubstr, testing::IsEmpty;

std::vector<std::string> names_of(const LinkChoice& choice) {
  std::vector<std::string> names;
  for (const Link& link : choice.links) names.push_back(link.name());
  return names;
}

Gpu gpu(std::vector<int> peers, const std::string& mode = "default") {
  Gpu made;
  made.facts.peers = std::move(peers);
  made.facts.compute_mode = mode;
  return made;
}

BusFacts bus_of(std::vector<Gpu> gpus) {
  BusFacts bus;
  bus.gpu_files = static_cast<int>(gpus.size());
  bus.gpus = std::move(gpus);
  return bus;
}

BusFacts without_gpus() {
  BusFacts bus;
  bus.why_no_gpus = "no driver";
  return bus;
}

TEST(ChooseLinks, SkipsGpusWithAReasonIfThereAreNone) {
  for (const char* devices : {"first", "all"}) {
    const LinkChoice choice = choose_links({.devices = devices}, without_gpus(), {});
    EXPECT_THAT(names_of(choice), ElementsAre("threads", "processes", "islands", "tcp", "ucx"));
    ASSERT_EQ(choice.verdicts.size(), 1);
    EXPECT_EQ(choice.verdicts[0].status, Status::skipped);
    EXPECT_THAT(choice.verdicts[0].why, HasSubstr("no driver"));
  }
  EXPECT_THAT(choose_links({.devices = "none"}, without_gpus(), {}).verdicts, IsEmpty());
}

TEST(ChooseLinks, FailsIfAGpuExistsButCantBeUsed) {
  BusFacts bus = without_gpus();
  bus.gpu_files = 2;
  const LinkChoice choice = choose_links({}, bus, {});
  ASSERT_EQ(choice.verdicts.size(), 1);
  EXPECT_EQ(choice.verdicts[0].status, Status::failed);
  EXPECT_FALSE(is_fine(choice.verdicts));
}

TEST(ChooseLinks, ChoosesOneDeviceOrEachAndAllTogether) {
  const BusFacts bus = bus_of({gpu({1}), gpu({0})});
  const std::vector<LinkType> types = {LinkType::threads, LinkType::tcp};
  EXPECT_THAT(names_of(choose_links({.types = types}, bus, {})),
              ElementsAre("threads", "tcp", "gpu 0, threads", "gpu 0, tcp"));
  EXPECT_THAT(names_of(choose_links({.types = types, .devices = "1"}, bus, {})),
              ElementsAre("threads", "tcp", "gpu 1, threads", "gpu 1, tcp"));
  const LinkChoice all = choose_links({.types = types, .devices = "all"}, bus, {});
  EXPECT_THAT(names_of(all), ElementsAre("threads", "tcp", "gpu 0, threads", "gpu 0, tcp", "gpu 1, threads",
                                         "gpu 1, tcp", "gpus 0-1, threads", "gpus 0-1, tcp"));
  EXPECT_THAT(all.links.back().rank_counts, ElementsAre(2));
  EXPECT_EQ(all.links.back().place_of(RankId(1)).device, 1);
}

TEST(ChooseLinks, JoinsGpusThatAreNotPeersOnlyBetweenNodes) {
  const LinkChoice choice =
      choose_links({.types = {LinkType::threads, LinkType::islands}, .devices = "all"}, bus_of({gpu({}), gpu({})}), {});
  EXPECT_THAT(names_of(choice), ElementsAre("threads", "islands", "gpu 0, threads", "gpu 0, islands", "gpu 1, threads",
                                            "gpu 1, islands", "gpus 0-1, islands"));
  ASSERT_EQ(choice.verdicts.size(), 1);
  EXPECT_THAT(choice.verdicts[0].why, HasSubstr("can't reach the memory of GPU 1"));
}

TEST(ChooseLinks, SkipsProcessesThatWouldShareAnExclusiveGpu) {
  const LinkChoice choice =
      choose_links({.types = {LinkType::threads, LinkType::processes}}, bus_of({gpu({}, "exclusive_process")}), {});
  EXPECT_THAT(names_of(choice), ElementsAre("threads", "processes", "gpu 0, threads"));
  EXPECT_EQ(choice.verdicts.at(0).status, Status::skipped);
}

TEST(ChooseLinks, SkipsLinksThatTheMachineLacks) {
  const LinkChoice choice =
      choose_links({.devices = "none"}, {}, {.far_processes = "no namespace", .ucx = "no library"});
  EXPECT_THAT(names_of(choice), ElementsAre("threads", "processes", "islands"));
  ASSERT_EQ(choice.verdicts.size(), 2);
  EXPECT_EQ(choice.verdicts[0].link, "tcp");
  EXPECT_EQ(choice.verdicts[0].why, "no namespace");
}

TEST(ChooseLinks, RefusesMissingDevices) {
  for (const char* devices : {"1", "0,7", "-1"})
    shunt::test::require_error([&] { (void)choose_links({.devices = devices}, bus_of({gpu({})}), {}); },
                               ErrorCode::invalid_argument, "there is no GPU");
  for (const char* devices : {"", "x", "0x", "01", "first,all"})
    shunt::test::require_error(
        [&] {
          (void)choose_links({.devices = devices}, bus_of({gpu({}), gpu({})}), {});
        },
        ErrorCode::invalid_argument, "expected none, first, all, or indices");
}

TEST(CasesOf, CoversEveryOfferedLayoutAndDType) {
  for (const bool has_device : {false, true})
    for (const LinkType type : kLinkTypes) {
      Link link{.type = type, .rank_counts = {2, 4}};
      if (has_device) link.devices = {0};
      for (const Layout layout : {Layout::expert_major, Layout::token_unique, Layout::padded})
        for (const DType dtype : {f32, bf16, f16, fp8_e4m3})
          for (const std::int32_t ranks : {2, 4}) {
            const auto cases = cases_of(link);
            const bool is_covered = std::ranges::any_of(cases, [&](const CaseKey& key) {
              return key.layout == layout && key.dtype == dtype && key.ranks == ranks;
            });
            EXPECT_EQ(is_covered, offers(link, layout)) << link.name() << ' ' << to_string(layout);
          }
    }
}

TEST(NotOffered, UsesTheNamesOfTheTable) {
  const Link host{.type = LinkType::tcp}, node{.type = LinkType::threads, .devices = {0}},
      cluster{.type = LinkType::tcp, .devices = {0}};
  EXPECT_THAT(not_offered(host, Layout::expert_major), IsEmpty());
  EXPECT_EQ(offers(node, Layout::padded), support_of(Feature::padded).of(EngineKind::node));
  EXPECT_EQ(offers(cluster, Layout::padded), support_of(Feature::padded).of(EngineKind::cluster));
  const bool has_gradients = support_of(Feature::padded_gradients).of(EngineKind::node);
  EXPECT_EQ(std::ranges::count(not_offered(node, Layout::padded), "gradients of padded rows"), has_gradients ? 0 : 1);
}

}  // namespace
}  // namespace shunt::bench::selftest
