# The commands in a container: `docker build -t swinmr-profile .`, then
# `docker run --rm --gpus all -v "$PWD":/work swinmr-profile profile --config configs/train_config.json`.
FROM python:3.12-slim
COPY . /opt/swinmr-profiling
WORKDIR /opt/swinmr-profiling
RUN python -m pip install --no-cache-dir .
WORKDIR /work
RUN swinmr-profile init
RUN swinmr-profile profile --config configs/train_config_small.json --image-size 64 --batch-sizes 1 2 --num-runs 3 --device cpu --no-training
ENTRYPOINT ["swinmr-profile"]
CMD ["--help"]
