{{/* Every setting that is not secret. What `settings` says wins over what the chart knows by itself. */}}
{{- define "riverrun.settings" -}}
{{- include "riverrun.check" . -}}
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
{{ $name }}: {{ include "riverrun.text" $value }}
{{- end }}
{{- end -}}

{{/* A value as a string. Numbers of a values file have a point that floats: a million would else be 1e+06, which is no number of bytes. */}}
{{- define "riverrun.text" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}
{{ int64 . | quote }}
{{- else -}}
{{ . | quote }}
{{- end -}}
{{- end -}}

{{/* What Kubernetes would start and start again, or what would do half of the work wrongly, is refused before it is there. */}}
{{- define "riverrun.check" -}}
{{- $kinds := list "ingester" "embedder" "indexer" "agent" "trainer" "analyzer" "projector" "tracer" -}}
{{- range .Values.workers -}}
{{- if not (has .name $kinds) -}}
{{- fail (printf "workers: there is no kind of worker %q; name one of %s" (toString .name) (join ", " $kinds)) -}}
{{- end -}}
{{- if and (eq .name "projector") (gt (int .concurrency) 1) -}}
{{- fail "workers: the projector writes one transaction at a time; leave its concurrency out" -}}
{{- end -}}
{{- if and (eq .name "ingester") $.Values.server.enabled -}}
{{- fail "workers: an ingester beside the server would take documents whose tables only the server can make; leave it out, or set server.enabled=false" -}}
{{- end -}}
{{- end -}}
{{- if not (or .Values.server.enabled .Values.api.enabled .Values.workers) -}}
{{- fail "nothing is to run; set server.enabled or api.enabled, or name workers" -}}
{{- end -}}
{{- end -}}
