# The vrampack image: a base with Python 3.13, and one folder, /opt/vrampack, with the program in it.
# `make image` builds exactly this file, with a base made of Debian packages, and tries the result.
#
# It builds from a clean clone: `docker build .` needs nothing made before.
#
# BASE is any Debian-like image with `python3` and its venv module. A release names it by digest:
#   docker build --build-arg BASE=docker.io/library/python:3.13-slim-trixie@sha256:... .
# COMPILER_BASE is an image with gcc and make, or one whose apt-get reaches them; nothing of it is in the result.
# BUILDER_BASE is one with the Python of BASE and its venv module. It and the compiler run on the machine that builds;
# for another architecture than that machine's (`--platform linux/arm64`) only the last step needs qemu.
# PARTS=extender leaves out what only `vrampack agent` uses.
# A package index of your own, or one behind a private authority, is handed in without leaving a trace, and so is a proxy
# or a mirror for apt-get:
#   docker build --secret id=pip.conf,src=pip.conf --secret id=ca.pem,src=ca.pem .    (pip.conf: cert = /run/secrets/ca.pem)
#   docker build --secret id=apt.conf,src=apt.conf .
ARG BASE=docker.io/library/python:3.13-slim-trixie
ARG COMPILER_BASE=${BASE}
ARG BUILDER_BASE=${BASE}


# The library that containers load in front of libc: what the agent puts into the node's folder.
FROM --platform=${BUILDPLATFORM} ${COMPILER_BASE} AS library
ARG TARGETARCH
COPY images/target images/target
RUN --mount=type=secret,id=apt.conf,target=/etc/apt/apt.conf.d/99secret \
    if ! { command -v "$(images/target compiler)" && command -v make; }; then \
        apt-get update && apt-get install --yes --no-install-recommends $(images/target packages) make; \
    fi
WORKDIR /src
COPY shim/core shim/core
COPY shim/preload shim/preload
RUN make -C shim/preload preload OUT=/out CC="$(/images/target compiler)"


FROM --platform=${BUILDPLATFORM} ${BUILDER_BASE} AS builder
ARG TARGETARCH
ARG PARTS=all
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0 SOURCE_DATE_EPOCH=1577836800
WORKDIR /src

# Two environments: /tools has pip and setuptools, /opt/vrampack never sees them.
COPY images/target images/target
COPY requirements/runtime.txt requirements/dev.txt requirements/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf --mount=type=secret,id=ca.pem \
    python3 -m venv /tools \
    && python3 -m venv --without-pip /opt/vrampack \
    # The one build requirement, at the version and the hashes that development is pinned to.
    && sed -n '/^setuptools==/,/[^\\]$/p' requirements/dev.txt > /tools/setuptools.txt \
    && /tools/bin/pip install --require-hashes --requirement /tools/setuptools.txt \
    && /tools/bin/pip --python /opt/vrampack/bin/python3 install --no-compile --only-binary=:all: $(images/target pip) \
        --target "$(echo /opt/vrampack/lib/python3*/site-packages)" --require-hashes --requirement requirements/runtime.txt

COPY pyproject.toml LICENSE ./
COPY vrampack vrampack
COPY extender extender
COPY policies policies
# The image needs no description of the package, and a change of README.md makes no other image.
RUN sed -i '/^readme = /d' pyproject.toml \
    && /tools/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /tools/wheel . \
    && /tools/bin/pip --python /opt/vrampack/bin/python3 install --no-compile --no-deps --no-index /tools/wheel/*.whl

COPY --from=library /out/libvrampack.so /opt/vrampack/lib/vrampack/libvrampack.so

# Python does not check bytecode at run time: it does not depend on file times, and the root is read-only anyway.
WORKDIR /tools
COPY images/elf_symbols.py images/environment_trim.py images/base_trim.py images/
RUN /opt/vrampack/bin/python3 -m images.environment_trim "${PARTS}" "${TARGETARCH}" \
    && /opt/vrampack/bin/python3 -m compileall -q --invalidation-mode unchecked-hash /opt/vrampack/lib


FROM --platform=${TARGETPLATFORM} ${BASE}
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="vrampack" \
      org.opencontainers.image.description="Packs pods onto GPU cards by memory: a kube-scheduler extender" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=builder /opt/vrampack /opt/vrampack

ENV PATH=/opt/vrampack/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
# A base may come with pip, and with a standard library that was never compiled: the first goes, and what the
# program imports of the second is compiled by importing it once, while the root can still be written.
RUN --mount=type=bind,from=builder,source=/tools,target=/run/tools cd /run/tools && PYTHONHASHSEED=0 python3 -m images.base_trim
# The Kubernetes client asks for a home when it is imported, and user 65532 is in no password file.
ENV PYTHONDONTWRITEBYTECODE=1 HOME=/
WORKDIR /
USER 65532:65532
ENTRYPOINT ["vrampack"]
CMD ["serve"]
