# Debian 12 is named because later releases have no Java 17. To build on an exact image, pass its digest:
# docker build --build-arg BASE=python@sha256:… .
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE}

RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless redis-server \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /app
COPY requirements-run.txt .
RUN pip install --no-cache-dir --require-hashes --requirement requirements-run.txt

COPY pyproject.toml README.md LICENSE app.py /source/
COPY pages /source/pages
COPY ppa_core /source/ppa_core
COPY monitoring /source/monitoring
RUN pip install --no-cache-dir --no-deps --no-build-isolation /source && rm -r /source

RUN useradd --create-home --uid 10001 ppa \
    && install --directory --owner=ppa --group=ppa --mode=700 .ppa
USER ppa
ENV PYTHONUNBUFFERED=1

EXPOSE 8501
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8501/_stcore/health', timeout=4)"]
# Only the dashboard; use the command `ppa serve q1 --address 0.0.0.0` to start everything. Outside a container the pages listen on
# loopback only; inside, the published port decides who reaches them.
CMD ["python", "-m", "pages", "--server.address=0.0.0.0", "--server.port=8501"]
