// What is asked of the library outside of compiled programs.
#include "dispatch.h"

extern "C" const char* longhmm_instruction_set() { return instruction_set(); }
