# syntax=docker/dockerfile:1
# One image for the gateway, the coordinator and members; `fedrouter` is its entry point.
# The wheel and the environment come from the Makefile, as on any machine: `make install`.

FROM python:3.11-slim-bookworm AS build
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY . .
# `encoder` adds torch, for bundles of a neural encoder; PIP_EXTRA_INDEX_URL may name an index with its smaller CPU build.
ARG EXTRAS=serve,learn,postgres,flower
ARG PIP_EXTRA_INDEX_URL=
RUN PIP_NO_CACHE_DIR=1 make install PYTHON=python PREFIX=/opt/fedrouter EXTRAS="${EXTRAS}"

FROM python:3.11-slim-bookworm
COPY --from=build /opt/fedrouter /opt/fedrouter
RUN useradd --system --uid 10001 --user-group --create-home --home-dir /var/lib/fedrouter fedrouter
ENV PATH=/opt/fedrouter/bin:$PATH \
    FEDROUTER_CACHE=/var/lib/fedrouter/cache \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /var/lib/fedrouter
VOLUME /var/lib/fedrouter
EXPOSE 8080 9092
# For the gateway; compose.yaml overrides the check for the others.
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/health/ready', timeout=2)"]
ENTRYPOINT ["fedrouter"]
CMD ["serve", "--config", "/etc/fedrouter/gateway.yaml", "--host", "0.0.0.0"]
