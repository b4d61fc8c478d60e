// The include of OneFlow's tutorials.
#include <rsnet/oneflow.hpp>
