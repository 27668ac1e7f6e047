#pragma once

#include "bench/reference/dice.hpp"

namespace shunt::test {

using shunt::Dice;

}  // namespace shunt::test
