{{- /* Rules with this release's namespace and thresholds, and the place of their runbooks. */}}
{{- define "alerts" -}}
{{- $of := .Values.metrics.prometheusRule -}}
{{- $rules := .Files.Get "files/alerts.yaml" | replace "$installation" (printf "namespace=%q" .Release.Namespace) -}}
{{- range $name, $value := $of.thresholds }}{{ $rules = replace (printf "${%s}" $name) (toString $value) $rules }}{{ end -}}
{{- $rules = fromYamlArray $rules -}}
{{- range $rules -}}
{{- $_ := set .annotations "runbook_url" (printf "%s#%s" ($of.runbookUrl | default "docs/alerts.md") (lower .alert)) -}}
{{- end -}}
{{- toYaml $rules -}}
{{- end }}
