# A static binary and nothing else, run as nobody in particular.
#   docker build -t edda --build-arg VERSION=1.2.3 .
#   docker run --stop-timeout 45 -v edda:/data -v ./edda.yaml:/etc/edda/edda.yaml:ro edda
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS TARGETARCH
ARG VERSION=dev
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o /out/edda ./cmd/edda
RUN mkdir -p /out/data /out/tmp

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/edda /edda
COPY --from=build --chown=65532:65532 /out/data /data
COPY --from=build --chown=65532:65532 /out/tmp /tmp
ENV EDDA_DATA=/data
USER 65532:65532
VOLUME /data
# The API listens on loopback inside the container: docker exec … /edda instance list. What an
# orchestrator and Prometheus ask for has an address of its own:
#   docker run -e EDDA_PROBE_ADDR=:8701 -p 8701:8701 …
#   livenessProbe: {httpGet: {path: /live, port: 8701}}
EXPOSE 8701
# With TLS or another port for the API, set EDDA_URL for it.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["/edda", "health"]
ENTRYPOINT ["/edda"]
CMD ["run", "--config", "/etc/edda/edda.yaml"]
