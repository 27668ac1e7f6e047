// Exits with 0 if the installed headers and archives belong together.
#include <cstdlib>
#include <shunt/expert_map.hpp>
#include <shunt/machine.hpp>

int main() {
  const auto map = shunt::ExpertMap::contiguous(8, 2);
  const bool placed = map.rank(map.copies(shunt::ExpertId(7)).front()) == shunt::RankId(1);
  return placed && shunt::Machine::detect().cores > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
