"""Importing this loads whatever a command may import, so that forked processes need not."""

import pkgutil
from importlib import import_module

import td7

LIBRARIES = ("scipy.stats", "h5py", "rich.console", "onnx.reference", "onnx.checker")
NOT_LOADED = ("td7.networks.triton_kernels", "td7.bench")  # what other programs need

for name in LIBRARIES:
    import_module(name)
for found in pkgutil.walk_packages(td7.__path__, "td7."):
    if not found.name.startswith(NOT_LOADED):
        import_module(found.name)
