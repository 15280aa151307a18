#define VARIANT baseline
#define VECTOR_BYTES 16
#include "variant.h"
