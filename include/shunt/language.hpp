// Stops the compilation with one error instead of dozens if the language is older than C++20.
#pragma once

#if __cplusplus < 202002L
// A missing file stops the compilation at once; #error would let it continue.
#include <shunt needs C++20: compile with -std=c++20 or later>
#endif
