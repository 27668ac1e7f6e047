"""Makes files of expert maps for tests of benchmarks."""
import random


def hash_of(numbers):
    """The hash of src/core/hash.hpp, implemented a second time, so that a change of the file format is noticed."""
    mask, state = (1 << 64) - 1, 0x5348554e54
    for number in numbers:
        z = state ^ ((number + 0x9e3779b97f4a7c15 + (state << 6)) & mask)
        z = ((z ^ (z >> 30)) * 0xbf58476d1ce4e5b9) & mask
        z = ((z ^ (z >> 27)) * 0x94d049bb133111eb) & mask
        state = z ^ (z >> 31)
    return f"{state:016x}"


def map_of(*layers, experts, nodes=1):
    """A file for layers of [[experts of a rank], …], each ascending; copies have a share of 1."""
    numbers = [experts, nodes, len(layers[0]) // nodes, len(layers)]
    for ranks in layers:
        numbers += [len(rank) for rank in ranks]
        numbers += [number for rank in ranks for expert in rank for number in (expert, 1)]
    return {"shunt_map": 1, "experts": experts, "nodes": nodes, "ranks_per_node": len(layers[0]) // nodes,
            "layers": [{"ranks": ranks} for ranks in layers], "hash": hash_of(numbers)}


def contiguous(experts, ranks):
    first = 0
    placement = []
    for rank in range(ranks):
        count = experts // ranks + (rank < experts % ranks)
        placement.append(list(range(first, first + count)))
        first += count
    return placement


def shuffled(seed, experts, ranks, replicas=0):
    """Every expert on a random rank, and up to `replicas` of them on a second one; ranks hold different numbers, maybe none."""
    dice = random.Random(seed)
    placement = [set() for _ in range(ranks)]
    for expert in range(experts):
        dice.choice(placement).add(expert)
    for _ in range(replicas):
        dice.choice(placement).add(dice.randrange(experts))
    return [sorted(rank) for rank in placement]
