// What is asked of the library outside of compiled programs.
#include "dispatch.h"

extern "C" const char* longhmm_instruction_set() { return instruction_set(); }

// What a library of another version does not know.
extern "C" int longhmm_last_kind() { return MIXTURE; }
