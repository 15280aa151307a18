// Uniform random numbers that depend on a key and on the number of a row alone: the same for any chunks and threads.
#pragma once

#include "vectors.h"

namespace VARIANT {

typedef uint32_t Words __attribute__((vector_size(VECTOR_BYTES / 2)));  // one for each lane of doubles
typedef uint64_t Pairs __attribute__((vector_size(VECTOR_BYTES)));

// Threefry with two words and twenty rounds (Salmon and others 2011), the generator that JAX uses.
inline void threefry(const uint32_t* key, Words& x0, Words& x1) {
  const uint32_t keys[3] = {key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDAu};
  constexpr int rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  x0 += keys[0];
  x1 += keys[1];
  for (uint32_t block = 0; block < 5; ++block) {
    for (int rotation : rotations[block % 2]) {
      x0 += x1;
      x1 = (x1 << rotation) | (x1 >> (32 - rotation));
      x1 ^= x0;
    }
    x0 += keys[(block + 1) % 3];
    x1 += keys[(block + 2) % 3] + block + 1;
  }
}

// Uniforms on [0, 1) with 53 bits, for the given rows.
inline Vec<double> uniforms(const uint32_t* key, Bits<double> rows) {
  const Pairs counts = (Pairs)rows;
  Words high = __builtin_convertvector(counts >> 32, Words), low = __builtin_convertvector(counts & 0xffffffffu, Words);
  threefry(key, high, low);
  const Pairs bits = ((__builtin_convertvector(high, Pairs) << 32) | __builtin_convertvector(low, Pairs)) >> 11;
  return __builtin_convertvector((Bits<double>)bits, Vec<double>) * 0x1p-53;
}

}  // namespace VARIANT
