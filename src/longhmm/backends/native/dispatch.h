// The functions that the interfaces (plain C, and JAX's) are built on.
#pragma once

#include "call.h"
#include "paths.h"

// Name of the instructions this processor will be served with.
const char* instruction_set();

// Carry out a call; `wide` chooses double precision for the recursions.
void statistics(Call& call, int wide);

// Find paths of states through chunks.
void find_paths(Paths& paths);
