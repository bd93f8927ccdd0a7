{{- define "raincheck.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{/* The name of all objects: the release's, unless it is given. */}}
{{- define "raincheck.fullname" -}}
{{- $named := .Release.Name -}}
{{- with .Values.nameOverride }}{{ if not (contains . $named) }}{{ $named = printf "%s-%s" $named . }}{{ end }}{{ end -}}
{{- .Values.fullnameOverride | default $named | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{/* By which objects find the pods. They cannot change with an upgrade. */}}
{{- define "raincheck.selector" -}}
app.kubernetes.io/name: {{ include "raincheck.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Those of the pods. Prometheus takes its job from the last one, so it is the same whatever the release is called. */}}
{{- define "raincheck.podLabels" -}}
{{ include "raincheck.selector" . }}
app.kubernetes.io/component: raincheck
{{- end }}

{{- define "raincheck.labels" -}}
{{ include "raincheck.podLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "raincheck.image" -}}
{{- with .Values.raincheck.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end }}

{{- define "raincheck.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "raincheck.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end }}

{{/* What the operator writes as environment variables, by name. The value of a variable from elsewhere is not known here. */}}
{{- define "raincheck.written" -}}
{{- $written := dict -}}
{{- range $name, $value := .Values.raincheck.settings }}{{ if not (kindIs "invalid" $value) }}{{ $_ := set $written $name (toString $value) }}{{ end }}{{ end -}}
{{- range .Values.raincheck.extraEnv }}{{ $_ := set $written .name (ternary (toString .value) "from elsewhere" (hasKey . "value")) }}{{ end -}}
{{- toYaml $written -}}
{{- end }}

{{/* What raincheck is told, with the operator's own settings on top. */}}
{{- define "raincheck.settings" -}}
{{- include "raincheck.check" . -}}
{{- $drain := .Values.drain -}}
{{- $settings := dict
  "RAINCHECK_UPSTREAM__URL" (printf "http://127.0.0.1:%d%s" (int .Values.server.port) .Values.server.path)
  "RAINCHECK_LISTEN__ADDRESS" "0.0.0.0:8440"
  "RAINCHECK_ADMIN__PROBES" "0.0.0.0:8441"
  "RAINCHECK_STORE__NAMESPACE" .Release.Name
  "RAINCHECK_DRAIN__DELAY" (printf "%ds" (int $drain.delaySeconds))
  "RAINCHECK_DRAIN__GRACE" (printf "%ds" (int $drain.graceSeconds))
  "RAINCHECK_DRAIN__TOKEN" (include "raincheck.token" .)
-}}
{{- if .Values.monitor.enabled }}{{ $_ := set $settings "RAINCHECK_ADMIN__LISTEN" "0.0.0.0:8442" }}{{ end -}}
{{- if not (regexMatch "(?m)^[^#\n]*\\ballowed_hosts\\b" .Values.raincheck.config) }}{{ $_ := set $settings "RAINCHECK_LISTEN__ALLOWED_HOSTS" (include "raincheck.hosts" .) }}{{ end -}}
{{- range $name, $value := .Values.raincheck.settings }}{{ if not (kindIs "invalid" $value) }}{{ $_ := set $settings $name (toString $value) }}{{ end }}{{ end -}}
{{- toYaml $settings -}}
{{- end }}

{{/* By which clients know the Service, and the hosts that lead to it from outside. */}}
{{- define "raincheck.hosts" -}}
{{- $name := include "raincheck.fullname" . -}}
{{- $namespaced := printf "%s.%s" $name .Release.Namespace -}}
{{- $hosts := list $name $namespaced (printf "%s.svc" $namespaced) (printf "%s.svc.%s" $namespaced .Values.clusterDomain) -}}
{{- if .Values.ingress.enabled }}{{ $hosts = concat $hosts .Values.ingress.hosts }}{{ end -}}
{{- if .Values.httpRoute.enabled }}{{ $hosts = concat $hosts .Values.httpRoute.hostnames }}{{ end -}}
{{- $hosts | uniq | join "," -}}
{{- end }}

{{- define "raincheck.token" -}}
{{- required "drain.token is missing: write your own (openssl rand -hex 16)" .Values.drain.token -}}
{{- end }}

{{/* Refuses what raincheck would refuse at its start, or what would leave it where nobody looks for it. */}}
{{- define "raincheck.check" -}}
{{- $written := include "raincheck.written" . | fromYaml -}}
{{- $config := .Values.raincheck.config -}}
{{- range $name, $key := dict "TOKEN" "token" "TOKEN_FILE" "token" "DELAY" "delaySeconds" "GRACE" "graceSeconds" -}}
{{- $setting := printf "RAINCHECK_DRAIN__%s" $name -}}
{{- if hasKey $written $setting }}{{ fail (printf "write drain.%s in place of %s, because the pod needs it, too" $key $setting) }}{{ end -}}
{{- end -}}
{{- range $setting, $port := dict "RAINCHECK_LISTEN__ADDRESS" ":8440" "RAINCHECK_ADMIN__PROBES" ":8441" "RAINCHECK_ADMIN__LISTEN" ":8442" -}}
{{- $address := get $written $setting -}}
{{- if and $address (not (hasSuffix $port $address)) }}{{ fail (printf "%s: the port must be %s, which the pod, its probes and the Service name" $setting (trimPrefix ":" $port)) }}{{ end -}}
{{- end -}}
{{- /* What a Secret as a whole (extraEnvFrom) says is not known here. */ -}}
{{- if not .Values.raincheck.extraEnvFrom -}}
{{- $asks := or (get $written "RAINCHECK_AUTH__TOKENS_FILE") (get $written "RAINCHECK_AUTH__CLIENT_ROOTS") (get $written "RAINCHECK_AUTH__JWT") (regexMatch "(?m)^[^#\n]*\\b(tokens_file|client_roots|jwt)\\b" $config) -}}
{{- $anonymous := or (has (get $written "RAINCHECK_AUTH__ALLOW_ANONYMOUS") (list "true" "from elsewhere")) (regexMatch "(?m)^[^#\n]*\\ballow_anonymous\\s*=\\s*\"?true" $config) -}}
{{- if not (or $asks $anonymous) }}{{ fail "who may call is not said, and raincheck does not start without it: set RAINCHECK_AUTH__TOKENS_FILE (raincheck.settings, with the file from raincheck.extraVolumes) or [[auth.jwt]] (raincheck.config), or raincheck.settings.RAINCHECK_AUTH__ALLOW_ANONYMOUS=true if something in front of raincheck decides who may call" }}{{ end -}}
{{- $stored := or .Values.redis.secret (get $written "RAINCHECK_STORE__URL") (get $written "RAINCHECK_STORE__URL_FILE") (regexMatch "(?m)^\\s*(\\[store\\]|store\\b)" $config) -}}
{{- if not $stored }}{{ fail "where tasks live is not said: set redis.secret, or RAINCHECK_STORE__URL (raincheck.settings or raincheck.extraEnv)" }}{{ end -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) }}{{ fail "ingress.hosts is empty: raincheck refuses requests with names that it does not know" }}{{ end -}}
{{- if and .Values.httpRoute.enabled (not (and .Values.httpRoute.hostnames .Values.httpRoute.parentRefs)) }}{{ fail "httpRoute.hostnames and httpRoute.parentRefs must both be set" }}{{ end -}}
{{- end }}
