{{/* Every setting that is not secret. What `settings` says wins over what the chart knows by itself. */}}
{{- define "riverrun.settings" -}}
{{- $hosts := list .Release.Name (printf "%s.%s" .Release.Name .Release.Namespace) (printf "%s.%s.svc" .Release.Name .Release.Namespace) (printf "%s.%s.svc.cluster.local" .Release.Name .Release.Namespace) -}}
{{- $known := dict "RIVERRUN_KAFKA_BROKERS" .Values.kafka.brokers "RIVERRUN_DATA_DIR" "/var/lib/riverrun" -}}
{{- if .Values.ingress.enabled -}}
{{- $hosts = append $hosts .Values.ingress.host -}}
{{- $_ := set $known "RIVERRUN_API_ALLOWED_ORIGINS" (printf "https://%s" .Values.ingress.host) -}}
{{- end -}}
{{- if and .Values.server.enabled .Values.api.enabled -}}
{{- $server := printf "%s-server" .Release.Name -}}
{{- $hosts = append $hosts $server -}}
{{- $_ := set $known "RIVERRUN_WAREHOUSE_URL" (printf "http://%s:%v" $server .Values.service.port) -}}
{{- else if and .Values.server.enabled .Values.workers -}}
{{- $_ := set $known "RIVERRUN_WAREHOUSE_URL" (printf "http://%s:%v" .Release.Name .Values.service.port) -}}
{{- end -}}
{{- $_ := set $known "RIVERRUN_API_ALLOWED_HOSTS" (join "," $hosts) -}}
{{- range $name, $value := merge (dict) .Values.settings $known }}
{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end -}}
