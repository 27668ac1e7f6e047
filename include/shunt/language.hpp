// Ends the compilation where it can't succeed, with one error instead of dozens.
#pragma once

#if __cplusplus < 202002L
// A missing file ends the compilation at once; #error would let it go on.
#include <shunt needs C++20: compile with -std=c++20 or later>
#endif
