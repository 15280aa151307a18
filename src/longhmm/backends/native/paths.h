// What finding paths of states is given and gives back. Shared by all instruction sets: plain data, no code.
#pragma once

#include "call.h"

constexpr uint8_t NO_STATE = 255;  // no path leads there; so there may be at most 255 states

// A path is fixed from the end backwards: `maps` tell the first state of every chunk for each state that may follow
// it, and with `following` known the chunks are filled in. Both come from one forward recursion.
struct Paths {
  Call call;           // rows, windows and parameters of one point; a window is a chunk with what lies to its left
  int32_t drawn;       // 1: drawn from the posterior, 0: the most probable path
  int32_t logarithms;  // 1: draw on logarithms from the start; 0: only where plain numbers would underflow
  uint32_t key[2];     // of the random numbers
  int64_t row_number;  // of the first row: it counts the random numbers

  const double* log_before;  // optional, (windows, K): logarithm of the message before each chunk
  double* before;            // optional, (windows, K): the same as found from the rows to the left
  double* leaving;           // optional, (windows, K): logarithm of the message at the end
  double* log_likelihood;    // optional, (windows): of the core given what came before, for drawn paths
  uint8_t* maps;             // optional, (windows, K + 1); the last entry: nothing follows
  const int32_t* following;  // with `states`, (windows): the state after each chunk, -1: nothing follows
  uint8_t* states;           // optional, at row - origin of core rows
  int64_t origin;

  int64_t redone;  // out: groups of chunks that were drawn on logarithms though that was not asked for
};
