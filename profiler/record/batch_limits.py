"""The largest batch that is ever measured, predicted or recommended."""

# The largest grid dimension of CUDA in y and z: kernels that put the batch there cannot run more, and no image
# network gains anything near it. A larger number is a slip of the finger.
MAX_BATCH_SIZE = 65535
