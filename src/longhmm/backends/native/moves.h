// Transitions that vary by row, as a call describes them. Shared by all instruction sets: plain data, no code.
#pragma once

#include <cstdint>

// Where the matrix of the transition into a row comes from.
enum MatrixSource : int32_t {
  ONE = 0,      // one matrix serves all rows
  INDEXED = 1,  // one of `count` matrices
  LOGITS = 2,   // softmax of numbers that are linear in the row's covariates
};

struct Moves {
  int32_t source;
  int32_t wide;            // 1: matrices and covariates are double, 0: float
  const void* matrices;    // INDEXED: (count, K, K)
  int64_t count;
  const int32_t* index;    // (rows), which matrix; null: row t has matrix t
  double least, least_possible;  // entries of the matrices
  const void* covariates;  // LOGITS: (rows, terms)
  const double* coefficients;  // (K, K, 1 + terms), the intercept first
  int32_t terms;

  void* pairs;        // optional, INDEXED by row: posteriors of transitions into core rows, in the recursion's precision
  int64_t sums_size;  // INDEXED with an index: count K K expected transitions; LOGITS: K K (1 + terms) derivatives
};
