"""The largest batch that is ever measured, predicted or recommended, and the fewest steps that measure one."""

# The largest grid dimension of CUDA in y and z: kernels that put the batch there cannot run more, and no image
# network gains anything near it. A larger number is a slip of the finger.
MAX_BATCH_SIZE = 65535
# The optimizer's state appears in the first step of training, and only the third is like all that follow.
MIN_TRAINING_STEPS = 3
