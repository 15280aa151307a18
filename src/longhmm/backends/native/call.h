// What one call of the kernel is given and gives back. Shared by all instruction sets: plain data, no code.
#pragma once

#include <cstdint>

#include "moves.h"

// How the log likelihood of a row is computed from its numbers f[0 .. width).
enum Kind : int32_t {
  GAUSSIAN = 0,  // pack of a state: constant, mean, rows of a lower triangle M with M^T M the precision
  LINEAR = 1,    // pack of a state: constant, one coefficient for each number
  TABLE = 2,     // pack of a state: one log probability for each value of the only number, 0, 1, 2, ...
  GIVEN = 3,     // the numbers are the log likelihoods themselves; no pack
  PAIR = 4,      // the same for every pair of the states before and at a row
  STUDENT = 5,   // pack of a state, for each feature: c, mean, a, h of c - h log(1 + a (f - mean)^2)
  MIXTURE = 6,   // pack of a state, for each component of the only number: log weight + constant, mean, 1 / scale
  FRAMES = 7,    // of every pair of states, by the shares of a frame that were spent on each level; see frames.h
};

// A number of a row is such a function of one of its values: `terms` holds value * TERMS + function.
enum Term : int32_t { SEEN, VALUE, LOG, COSINE, SINE, TERMS };

// Features of a row that may be missing while others are there; with more, such a row is missing.
constexpr int MOST_PARTS = 16;

// A point is one set of parameters. Points are grouped in chains: the points of a chain look at the same windows.
struct Call {
  // Data: rows of `width` numbers; NaN means that a row is missing, or that feature of a Gaussian or Student one.
  const void* rows;
  int32_t wide_rows;  // 1: double, 0: float
  int32_t width;
  int32_t columns;        // numbers of a row in memory: `width`, or values from which its numbers are made
  const uint64_t* terms;  // optional, (width): how (see statistics.h)
  int32_t kind;
  int32_t pack;  // numbers per state in `packs`

  // Windows, `chains` times `windows` of them: the core [begin, begin + core) and what lies around it.
  const int32_t* left;
  const int32_t* core;
  const int32_t* right;
  const int32_t* at_start;  // 1 where the row `begin - left` is the first of its sequence
  const int64_t* begin;
  int64_t windows;
  int32_t chains;
  int32_t points;  // of each chain
  int32_t max_left, max_core, max_right;

  // Parameters, `chains * points` of each, in double precision.
  int32_t states;
  const double* transition;  // (K, K)
  const double* initial;     // (K)
  const double* start;       // (K): message of the state before a window that does not begin its sequence
  const double* packs;       // (K, pack)
  const double* log_before;  // optional, (windows, K): log distribution before each window, in place of `start`
  const double* log_after;   // optional, (windows, K): log message from behind each window, in place of zeros

  Moves moves;               // where matrices vary by row
  const double* weight;      // (chains, windows): with which each window enters the sums

  // Sums, (chains, points, ...), or (chains, points, windows, ...), without weights, where `per_window`.
  int32_t per_window;
  double* log_likelihood;  // ()
  double* first;           // (K)
  double* transitions;     // (K, K)
  double* statistics;      // (K, sums)
  double* moved;           // (moves.sums_size)

  // Optional: posteriors of core rows, at (row - origin) * K + k, smoothed or filtered, in the recursion's precision.
  void* gamma;
  int64_t gamma_origin;
  // Optional: what predicted states of core rows are handed to, forward only, in double precision (see mixed.h); the
  // row there that is row 0 here, and how many numbers a row has there.
  const struct Mixed* mixed;
  int64_t mixed_first, mixed_width;
  // Optional, (windows, K) each: the logarithms of the messages at both edges of every core, up to a constant.
  double* edge_before;
  double* edge_leaving;
  double* edge_after;
  double* edge_entering;
  int64_t edge_stride;  // numbers between the edges of one point and of the next

  int32_t forward_only;
  int32_t threads;
  int64_t impossible;  // out: a row that no reachable state allows, or -1
  int64_t redone;     // out: windows redone on logarithms
};

inline int sums_of(int kind, int width, int pack) {
  switch (kind) {
    case GAUSSIAN:
      return 1 + width + width * (width + 1) / 2;
    case LINEAR:
      return 1 + width;
    case GIVEN:
    case PAIR:
      return 0;
    default:  // the derivative by each number of the pack
      return pack;
  }
}

// Whether likelihoods are those of pairs of states; whether every row has a matrix of its own.
inline bool of_pairs(const Call& call) { return call.kind == PAIR || call.kind == FRAMES; }
inline bool varies(const Call& call) { return call.moves.source != ONE || of_pairs(call); }

// Where results of a run of windows go: one sum, or one entry for each window.
struct Sums {
  double* log_likelihood;
  double* first;
  double* transitions;
  double* statistics;
  double* moved;
  int64_t impossible;
  int64_t redone;
  double* predicted;  // with `mixed`: states of core rows given those before, (lanes, max_core, mixed_width)
};
