// States that are observed alike, such as the phases of one: the likelihoods of a row are evaluated once for all.
#pragma once

#include <algorithm>
#include <vector>

#include "emissions.h"

namespace VARIANT {

// Log likelihoods of one row become likelihoods over the largest one, whose logarithm is returned.
template <class T, int K>
inline Vec<T> to_likelihoods(Vec<T>* logs, int states) {
  const int n = K ? K : states;
  Vec<T> top = logs[0];
  for (int k = 1; k < n; ++k) top = larger<T>(logs[k], top);
  top = top < all(-std::numeric_limits<T>::max()) ? Vec<T>{} : top;  // all impossible: zeros, not NaN
  for (int k = 0; k < n; ++k) logs[k] = exp_negative(logs[k] - top);
  return top;
}

// Which states have the same parameters; where few do not, or states are few, each is one of its own.
template <class T>
struct Alike {
  Call few;               // the call as if each of them were there once
  std::vector<T> pack;    // their parameters
  std::vector<int> which;  // of them every state is
  std::vector<Vec<T>> logs;

  Alike(const Call& call, const T* packs, int states, int rows) : few(call) {
    const int size = call.pack;
    few.states = 0;
    for (int k = 0; size > 0 && k < states; ++k) {
      const T* own = packs + int64_t(k) * size;
      int at = 0;
      while (at < few.states && !std::equal(own, own + size, pack.data() + int64_t(at) * size)) ++at;
      if (at == few.states) pack.insert(pack.end(), own, own + size), ++few.states;
      which.push_back(at);
    }
    if (2 * few.states > states) which.clear();
    logs.resize(which.empty() ? 0 : size_t(rows) * few.states);
  }

  // Likelihoods of rows [from, from + count), over the largest of each row, whose logarithms are the peaks.
  template <int K>
  void likelihoods(const Call& call, const T* packs, const Rows<T>& rows, int from, int count, Vec<T>* found, Vec<T>* peak) {
    const int n = K ? K : call.states;
    const bool each = K || which.empty();
    Vec<T>* const own = each ? found : logs.data();
    block_logs<T>(each ? call : few, each ? packs : pack.data(), rows, from, count, own);
    for (int r = 0; r < count; ++r) {
      peak[r] = to_likelihoods<T, K>(own + int64_t(r) * (each ? n : few.states), each ? n : few.states);
      for (int k = 0; !each && k < n; ++k) found[int64_t(r) * n + k] = own[int64_t(r) * few.states + which[k]];
    }
  }
};

}  // namespace VARIANT
