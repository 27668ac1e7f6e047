// A rank of a program that uses MPI besides shunt. Says of each of several worlds where it is, then of MPI that it
// still works.
#include <fmt/format.h>
#include <mpi.h>

#include <string_view>

#include "shunt/error.hpp"
#include "shunt/world.hpp"

namespace {

void meet() {
  shunt::World world = shunt::World::from_environment();
  world.barrier();
  fmt::print("rank {} of {} on node {}\n", world.rank().value, world.size(), world.topology().node(world.rank()).value);
}

}  // namespace

int main(int argc, char** argv) {
  const bool is_mpi_first = argc > 1 && std::string_view(argv[1]) == "mpi-first";
  if (is_mpi_first) MPI_Init(&argc, &argv);
  try {
    meet();
    meet();
    if (!is_mpi_first) MPI_Init(&argc, &argv);
    meet();
  } catch (const shunt::Error& error) {
    fmt::print("{}: {}\n", shunt::to_string(error.code()), error.what());
    return 3;
  }
  int rank = 0, sum = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) fmt::print("sum {}\n", sum);
  MPI_Finalize();
  return 0;
}
