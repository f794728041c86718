# A static binary and nothing else, run as nobody in particular.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o /edda ./cmd/edda && mkdir /data

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /edda /edda
COPY --from=build --chown=65532:65532 /data /data
USER 65532:65532
VOLUME /data
# The API listens on loopback inside the container. What an orchestrator and
# Prometheus ask for has an address of its own:
#   docker run -e EDDA_PROBE_ADDR=:8701 -p 8701:8701 …
#   livenessProbe: {httpGet: {path: /live, port: 8701}}
EXPOSE 8701
ENTRYPOINT ["/edda"]
CMD ["run", "--config", "/etc/edda/edda.yaml"]
