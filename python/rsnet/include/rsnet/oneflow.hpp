// OneFlow's C++ names for user operators, over plugin.h: REGISTER_USER_OP, REGISTER_USER_KERNEL,
// REGISTER_USER_OP_GRAD. The sources of its tutorials compile unchanged: their include,
// "oneflow/core/framework/framework.h", is a header that includes this one.
//
//     g++ $(python -m rsnet.sysconfig --cflags) -shared my_op.cpp -o libmy_op.so
//
// What differs from OneFlow: mistakes are errors of rsnet.load_library or of the call, never the
// end of the process; defaults of attributes are checked when the library is loaded; a kernel's
// dtype is checked when it reads an array.
#ifndef RSNET_ONEFLOW_HPP
#define RSNET_ONEFLOW_HPP

#include <rsnet/oneflow/grad.hpp>
#include <rsnet/oneflow/kernel.hpp>
#include <rsnet/oneflow/op.hpp>

#endif  // RSNET_ONEFLOW_HPP
