"""Half-private names of MXNet's modules that programs import, such as `model._create_kvstore`.

A file for each module has those that are not the module's own; `_mxnet_names.HALF_PRIVATE` lists
them, and the module's `__getattr__` imports the file when a program first asks. rsnet itself uses
none of them.
"""
