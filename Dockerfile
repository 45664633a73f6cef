# Untested: no container engine was at hand when this file was written.
#
#   docker build -t td7 .                               # PyTorch's default build, which includes CUDA
#   docker build -t td7 --build-arg TORCH_INDEX=URL .   # its CPU build; the selector on pytorch.org names the URL
#   docker run --rm --gpus all --user "$(id -u)" -v "$PWD:/data" td7 train td7 --env HalfCheetah-v4 --seeds 0-9
ARG PYTHON=3.11
FROM python:${PYTHON}-slim

# A compiler for the updates on a CPU, EGL and drivers for videos without a screen.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ libegl1 libgl1 libgl1-mesa-dri \
    && rm -rf /var/lib/apt/lists/*

ARG TORCH_INDEX=
ARG EXTRAS=video
WORKDIR /td7
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir --disable-pip-version-check -c constraints.txt \
    ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} ".[$EXTRAS]"

# Any user may run it: caches and the key that signs runs are below /tmp.
ENV HOME=/tmp TORCHINDUCTOR_CACHE_DIR=/tmp/inductor MUJOCO_GL=egl \
    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics
WORKDIR /data
ENTRYPOINT ["td7"]
CMD ["--help"]
