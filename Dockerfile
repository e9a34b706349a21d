# Debian 12 is named because later releases no longer carry Java 17.
FROM python:3.11-slim-bookworm

RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /app
COPY requirements.txt .
RUN pip install --no-cache-dir --requirement requirements.txt

COPY app.py ./
COPY .streamlit .streamlit
COPY pages pages
COPY ppa_core ppa_core
COPY monitoring monitoring

RUN useradd --create-home --uid 10001 ppa
USER ppa
ENV PYTHONUNBUFFERED=1

EXPOSE 8501
# Outside a container the pages listen on loopback only; inside, the published port decides who reaches them.
CMD ["python", "-m", "streamlit", "run", "app.py", "--server.address=0.0.0.0", "--server.port=8501"]
