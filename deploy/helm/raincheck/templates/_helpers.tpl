{{- define "raincheck.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* What raincheck is told, with the operator's own settings on top. */}}
{{- define "raincheck.settings" -}}
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
{{- range $name, $value := .Values.raincheck.settings }}{{ $_ := set $settings $name (toString $value) }}{{ end -}}
{{- toYaml $settings -}}
{{- end }}

{{- define "raincheck.token" -}}
{{- range $name, $key := dict "TOKEN" "token" "DELAY" "delaySeconds" "GRACE" "graceSeconds" -}}
{{- $setting := printf "RAINCHECK_DRAIN__%s" $name -}}
{{- if hasKey $.Values.raincheck.settings $setting }}{{ fail (printf "raincheck.settings: write drain.%s in place of %s, because the pod needs it, too" $key $setting) }}{{ end -}}
{{- end -}}
{{- required "drain.token is missing: write your own (openssl rand -hex 16)" .Values.drain.token -}}
{{- end }}
