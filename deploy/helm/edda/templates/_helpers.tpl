{{- define "edda.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "edda.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "edda.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "edda.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "edda.selector" -}}
app.kubernetes.io/name: {{ include "edda.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "edda.labels" -}}
{{ include "edda.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "edda.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* Whether the API is served to other pods. */}}
{{- define "edda.served" -}}
{{- if or .Values.api.expose .Values.cluster.enabled -}}yes{{- end -}}
{{- end -}}

{{/* edda.yaml: what the chart knows, then `config` over it. */}}
{{- define "edda.config" -}}
{{- $c := dict "role" "combined" "data" "/data" "probe_addr" ":8701" "manifests" (list "/manifests") -}}
{{- $_ := set $c "nats" (dict "url" .Values.nats.url) -}}
{{- with .Values.nats.credsSecret -}}
{{- $_ := set $c.nats "creds" "/secrets/nats/nats.creds" -}}
{{- end -}}
{{- with .Values.secrets.tokens -}}
{{- $_ := set $c "tokens" (dict "file" "/secrets/tokens/tokens.yaml") -}}
{{- end -}}
{{- if .Values.secrets.tls -}}
{{- $_ := set $c "tls" (dict "cert" "/secrets/tls/tls.crt" "key" "/secrets/tls/tls.key") -}}
{{- else if .Values.api.tlsElsewhere -}}
{{- $_ := set $c "tls" (dict "elsewhere" true) -}}
{{- end -}}
{{- with .Values.secrets.keyset -}}
{{- $_ := set $c "encryption" (dict "keyset" "/secrets/keyset/keyset.json") -}}
{{- end -}}
{{- with .Values.secrets.effects -}}
{{- $_ := set $c "effects" (dict "secrets" "/secrets/effects") -}}
{{- end -}}
{{- if include "edda.served" . -}}
{{- $by := ternary "cluster.enabled" "api.expose" .Values.cluster.enabled -}}
{{- if not .Values.secrets.tokens -}}
{{- fail (printf "%s needs secrets.tokens: without tokens everyone in the cluster could call" $by) -}}
{{- end -}}
{{- if not (or .Values.secrets.tls .Values.api.tlsElsewhere) -}}
{{- fail (printf "%s needs secrets.tls, or api.tlsElsewhere where a mesh terminates TLS" $by) -}}
{{- end -}}
{{- $_ := set $c "addr" "0.0.0.0:8700" -}}
{{- end -}}
{{- if .Values.cluster.enabled -}}
{{- if not .Values.secrets.node -}}
{{- fail "cluster.enabled needs secrets.node: with its token a pod copies the store of another one" -}}
{{- end -}}
{{- $n := dict "name" (.Values.cluster.name | default (include "edda.fullname" .)) "token_file" "/secrets/node/token" -}}
{{- if gt (int .Values.cluster.shards) 1 -}}
{{- $_ := set $n "shards" (int .Values.cluster.shards) -}}
{{- end -}}
{{- if .Values.secrets.tls -}}
{{- $_ := set $n "ca" "/secrets/tls/ca.crt" -}}
{{- end -}}
{{- $_ := set $c "cluster" $n -}}
{{- end -}}
{{- mergeOverwrite $c (deepCopy .Values.config) | toYaml -}}
{{- end -}}

{{/* The secrets that the pod mounts, by the name of their folder below /secrets. */}}
{{- define "edda.secrets" -}}
{{- $all := dict "nats" .Values.nats.credsSecret "drain" .Values.secrets.drain -}}
{{- range $name := list "effects" "tokens" "tls" "keyset" "node" -}}
{{- $_ := set $all $name (index $.Values.secrets $name) -}}
{{- end -}}
{{- range $name, $secret := $all -}}
{{- if not $secret -}}{{- $_ := unset $all $name -}}{{- end -}}
{{- end -}}
{{- $all | toYaml -}}
{{- end -}}
