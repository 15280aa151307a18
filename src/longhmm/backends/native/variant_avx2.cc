#define VARIANT avx2
#define VECTOR_BYTES 32
#include "variant.h"
