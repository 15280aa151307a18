// The interface for NumPy arrays, through ctypes.
#include "dispatch.h"

extern "C" {

const char* longhmm_instruction_set() { return instruction_set(); }

int64_t longhmm_call_size() { return sizeof(Paths); }

void longhmm_statistics(Call* call, int32_t wide) { statistics(*call, wide); }

void longhmm_paths(Paths* paths) { find_paths(*paths); }
}
