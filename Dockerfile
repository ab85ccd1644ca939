# The service as an image: `docker build -t stockade .`
#
# Both stages are Debian bookworm: a program built against a newer C library would not start here.

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked --package stockade

FROM debian:bookworm-slim
RUN useradd --system --uid 10001 --user-group --no-create-home stockade
COPY --from=build /src/target/release/stockade /usr/local/bin/stockade
COPY deploy/healthcheck /usr/local/bin/healthcheck
USER stockade
# In a container, loopback is the container's own.
ENV STOCKADE_LISTEN=0.0.0.0:8080
EXPOSE 8080
HEALTHCHECK --interval=2s --timeout=3s --start-period=40s --retries=3 CMD ["healthcheck"]
# Not through a shell: SIGTERM must reach the service.
ENTRYPOINT ["stockade"]
CMD ["serve"]
