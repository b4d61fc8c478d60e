// For sources that were written for MXNet.
#include <rsnet/mxnet.h>
