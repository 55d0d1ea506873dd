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

{{- /* Spec of the NetworkPolicy of sandboxes. With allNamespaces, the controller takes it to every namespace. */}}
{{- define "netpol.isolation" -}}
{{- $v := .Values.networkPolicy -}}
podSelector:
  matchLabels: {app.kubernetes.io/managed-by: sandbox-operator}
policyTypes: [Ingress, Egress]
ingress:
  - from:
      {{- range $component := list "gateway" "controller" }}
      - namespaceSelector:
          matchLabels: {kubernetes.io/metadata.name: {{ $.Release.Namespace }}}
        podSelector:
          matchLabels: {{- include "selector" (list $ $component) | nindent 12 }}
      {{- end }}
  {{- with $v.sandboxes.extraIngress }}{{ toYaml . | nindent 2 }}{{ end }}
egress:
  {{- include "netpol.dns" $v | trim | nindent 2 }}
  {{- if $v.sandboxes.internet }}
  {{- include "netpol.internet" $v.sandboxes.blockedCIDRs | trim | nindent 2 }}
  {{- end }}
  {{- with $v.sandboxes.extraEgress }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end }}

{{- /* Everything but these addresses: a list. */}}
{{- define "netpol.internet" }}
- to:
    {{- range $world := list "0.0.0.0/0" "::/0" }}
    {{- $except := list }}
    {{- range $ }}{{ if eq (contains ":" .) (contains ":" $world) }}{{ $except = append $except . }}{{ end }}{{ end }}
    - ipBlock:
        cidr: {{ quote $world }}
        {{- with $except }}
        except: {{- toYaml . | nindent 10 }}
        {{- end }}
    {{- end }}
{{- end }}
