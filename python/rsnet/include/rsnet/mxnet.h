// MXNet's C++ names for operators, over plugin.h: NNVM_REGISTER_OP with parameter structs, and
// MXNET_REGISTER_OP_PROPERTY with Operator and OperatorProperty. Sources that include
// "mxnet/operator.h", "dmlc/parameter.h" and their kin get this header.
//
//     g++ $(python -m rsnet.sysconfig --cflags) -shared my_op.cc -o libmy_op.so
//
// What differs from MXNet: a mistake is an error of rsnet.load_library or of the call. A kernel
// sees kAddTo only if its operator says so by set_attr<bool>("TAccumulates", true); otherwise rsnet
// adds. Expressions over tensors have what rsnet/mxnet/expr.hpp has, and run on the calling thread.
// What sources include from MXNet's own tree ("./operator_common.h", "../mshadow_op.h") is here.
#ifndef RSNET_MXNET_H
#define RSNET_MXNET_H

#include <rsnet/mxnet/kernel.hpp>
#include <rsnet/mxnet/property.hpp>

#endif  // RSNET_MXNET_H
