{{- define "name" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" (.Release.Name | trunc 23 | trimSuffix "-") .Chart.Name -}}
{{- end -}}
{{- end }}

{{- define "sandboxes" -}}
{{- .Values.sandboxes.namespace | default .Release.Namespace -}}
{{- end }}

{{- /* The labels that select Pods: (list . "gateway") */}}
{{- define "selector" -}}
app.kubernetes.io/name: {{ (index . 0).Chart.Name }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- /* All labels: (list . "gateway") */}}
{{- define "labels" -}}
{{ include "selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ printf "%s-%s" (index . 0).Chart.Name (index . 0).Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* An image: (list . .Values.image) */}}
{{- define "image" -}}
{{- $image := index . 1 -}}
{{- with $image.registry }}{{ . }}/{{ end }}{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default (index . 0).Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* a=b,c=d of a map */}}
{{- define "pairs" -}}
{{- $pairs := list -}}
{{- range $name, $value := . }}{{ $pairs = append $pairs (printf "%s=%s" $name (toString $value)) }}{{ end -}}
{{- join "," $pairs -}}
{{- end }}

{{- /* Host without the port, of the base URL */}}
{{- define "host" -}}
{{- regexReplaceAll ":[0-9]+$" (regexReplaceAll "^https?://" (trimSuffix "/" .Values.baseUrl) "") "" -}}
{{- end }}

{{- /* The hosts that lead to the gateway, as a JSON array */}}
{{- define "hosts" -}}
{{- $host := include "host" . -}}
{{- if eq .Values.urlForm "nested" -}}
{{- list $host (printf "*.%s" $host) | toJson -}}
{{- else if eq .Values.urlForm "flat" -}}
{{- list $host (printf "*.%s" (regexReplaceAll "^[^.]+\\." $host "")) | toJson -}}
{{- else -}}
{{- list $host | toJson -}}
{{- end -}}
{{- end }}
