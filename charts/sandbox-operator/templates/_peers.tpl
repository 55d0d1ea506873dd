{{- /* Rules and peers that several NetworkPolicies have. */}}
{{- define "netpol.dns" }}
- to:
    - {{ toYaml .dns | indent 6 | trim }}
  ports: [{protocol: UDP, port: 53}, {protocol: TCP, port: 53}]
{{- end }}
{{- define "netpol.api" }}
- to:
    {{- range .apiServerCIDRs }}
    - ipBlock: {cidr: {{ quote . }}}
    {{- end }}
  ports:
    {{- range .apiServerPorts }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
{{- end }}

{{- define "netpol.sandboxes" -}}
- podSelector:
    matchLabels: {app.kubernetes.io/managed-by: sandbox-operator}
  {{- if .Values.sandboxes.allNamespaces }}
  namespaceSelector: {}
  {{- else }}
  namespaceSelector:
    matchLabels: {kubernetes.io/metadata.name: {{ include "sandboxes" . }}}
  {{- end }}
{{- end }}
