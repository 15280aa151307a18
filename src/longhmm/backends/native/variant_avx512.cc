#define VARIANT avx512
#define VECTOR_BYTES 64
#include "variant.h"
