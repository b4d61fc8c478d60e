// Moving elements, and summing those that were repeated.

#include "shape.cu"
#include "reduce.cuh"
